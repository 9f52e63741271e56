"""Searches for plans, as the commands start and follow them, whatever kind of plan it is."""
