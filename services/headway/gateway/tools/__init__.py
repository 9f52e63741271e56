"""Tool calls: how models write them, and how they are read from text."""
