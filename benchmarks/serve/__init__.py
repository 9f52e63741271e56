"""Load generator and side-by-side comparison for OpenAI-compatible endpoints."""
