"""Measures what docs/security.md and docs/operate.md promise: what one client's requests cost another."""
