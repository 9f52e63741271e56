"""How a group is chosen: one policy a file."""
