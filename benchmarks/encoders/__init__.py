"""Embeddings a second with and without a backend."""
