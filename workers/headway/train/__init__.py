"""Training: ranks that run the lists of an execution on batches of data."""
