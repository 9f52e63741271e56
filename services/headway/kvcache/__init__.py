"""The cluster's view of KV caches: which worker holds which prefix blocks."""
