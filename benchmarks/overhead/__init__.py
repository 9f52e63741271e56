"""Measures what the gateway and the router add to the time to first token."""
