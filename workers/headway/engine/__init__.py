"""The engine: sequences, blocks, scheduling and the step loop. Pure Python, no torch."""
