"""The OpenAI API: what it takes, what it answers."""
