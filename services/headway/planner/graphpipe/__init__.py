"""GraphPipe: pipelines whose stages form a graph (graphpipe.txt; thesis chapter 3)."""
