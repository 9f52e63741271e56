"""Compares what the profiler predicts with what is measured."""
