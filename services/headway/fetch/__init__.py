"""Fetches a model's files from where they are published to a directory of ours."""
