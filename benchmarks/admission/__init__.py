"""Measures whether requests that are admitted in a burst keep their objective."""
