"""GraphPipe: pipelines whose stages form a graph (GraphPipe; thesis chapter 3)."""
