"""Training plans as what other tools read."""
