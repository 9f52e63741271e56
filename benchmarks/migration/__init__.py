"""The pause of a stream whose request moves to another worker."""
