"""What was measured of one machine's hardware: cells of a grid, and curves through them. Pure."""
