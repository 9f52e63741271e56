"""Training runs at the command line: made from a job, started, followed, stopped."""
