"""Runners that compute nothing: they take the time that a step would take, and make tokens up. No torch, no numpy."""
