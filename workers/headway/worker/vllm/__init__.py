"""vLLM as a worker's engine, through its Python API. Only a worker that vLLM's own interpreter runs imports this."""
