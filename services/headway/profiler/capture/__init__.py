"""Capture: a torch module, without its weights, to a `core.graph.Graph`. Runs in a process of its own."""
