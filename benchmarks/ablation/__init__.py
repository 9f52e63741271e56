"""The dissertation's ablations (5.7): the size of a block, and swapping against recomputation."""
