"""Plans: how models are served, placed and trained, in one form of document. Pure."""
