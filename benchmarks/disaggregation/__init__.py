"""Compares prompts computed beside decodes with prompts computed by a worker of their own, on the same requests."""
