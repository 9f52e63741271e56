"""The one-pass engine: sequences in, vectors out. Plain Python without torch, as the generating engine is."""
