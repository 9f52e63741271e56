"""Tensor programs as torch functions."""
