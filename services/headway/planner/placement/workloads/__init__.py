"""Where requests come from: traces that were recorded, arrivals that are generated, and traces that are resampled."""
