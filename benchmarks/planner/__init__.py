"""The training planners beside what public implementations took on the same instances."""
