"""Measures one model over several workers, each pinned to a core: throughput, and the bytes that they send."""
