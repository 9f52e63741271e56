"""KV blocks from worker to worker, and running requests with them."""
