"""Prompts computed beside decodes, and by a worker of their own: the same requests to both."""
