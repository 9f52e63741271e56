"""The worker process: loads a model, runs its engine in a thread, streams tokens, reports load and cached blocks."""
