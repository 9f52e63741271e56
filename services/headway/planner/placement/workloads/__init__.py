"""Sources of workloads: traces that were recorded, arrivals that are generated, and traces that are resampled."""
