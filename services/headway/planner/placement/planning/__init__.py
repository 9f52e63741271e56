"""The way from a problem to a plan: it searches, predicts the result, and explains it."""
