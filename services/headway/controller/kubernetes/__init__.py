"""Models that are declared as resources of Kubernetes, and what becomes of them in their status."""
