"""Networks for inference, one module a family, and the loading of their weights."""
