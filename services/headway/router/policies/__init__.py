"""Routing policies, which choose a group for a request: one policy a file."""
