"""Runs batches on a model: inputs, KV pool, sampling."""
