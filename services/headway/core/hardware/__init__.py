"""The measured profile of a machine's hardware: cells of a grid, and curves through them. Pure."""
