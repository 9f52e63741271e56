"""Measuring captured models on idle workers, as jobs that outlive their callers and this process."""
