"""Sources of workloads: recorded traces, generated arrivals, and resampled traces."""
