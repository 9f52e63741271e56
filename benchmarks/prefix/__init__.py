"""Measures what the prefix cache saves requests that start alike."""
