"""Makes a plan of a problem: the search, predictions for its result, and reasons against the alternatives."""
