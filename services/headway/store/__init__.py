"""The state that outlives a process: Redis, and checkpoints on disk."""
