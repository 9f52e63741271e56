"""GraphPipe's search on the paper's models: its time beside table 1, and what graphs gain over chains."""
