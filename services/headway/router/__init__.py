"""Decides which group serves a request, and keeps the books of what is in flight."""
