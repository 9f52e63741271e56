"""Tessel: the best pipeline schedule for any placement of tasks."""
