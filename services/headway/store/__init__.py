"""What outlives a process: Redis, and checkpoints on disk."""
