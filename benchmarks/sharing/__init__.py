"""Measures how much KV memory is saved by sharing blocks."""
