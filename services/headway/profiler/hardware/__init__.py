"""Measures what a machine's hardware can do: times what is not known yet, stores it, and fits models."""
