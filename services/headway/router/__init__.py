"""Decides which group serves a request, and keeps the leases of what is in flight."""
