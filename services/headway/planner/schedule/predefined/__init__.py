"""Schedules that others have published, as generators in the same types."""
