"""Searches placements on cases of the AlpaServe artifact, beside what it recorded."""
