"""Nouns that every room shares: pure, no I/O."""
