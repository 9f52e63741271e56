"""Paging against reserving a contiguous range for every request: wasted memory and sustained rate."""
