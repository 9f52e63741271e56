"""Checks training plans without asking how they were found: it shares no code with the search. Pure."""
