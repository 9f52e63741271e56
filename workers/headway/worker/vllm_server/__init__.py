"""A vLLM server that somebody else runs as a worker's engine, through its HTTP interface."""
