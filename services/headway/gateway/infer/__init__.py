"""Requests to models that do not generate: embeddings, classes, rankings."""
