"""Keeps Redis and the controller of a local stack alive, and ends everything that belongs to it."""
