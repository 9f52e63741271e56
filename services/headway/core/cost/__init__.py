"""Seconds of operators and graphs on hardware that was measured, or that the catalogue knows. Pure."""
