"""Serving plans: replicas of models on workers, and how each worker's memory is split."""
