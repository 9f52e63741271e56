"""From a problem to a plan: search, what to expect of the result, and why not otherwise."""
