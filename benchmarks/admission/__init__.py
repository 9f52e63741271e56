"""Whether those who are admitted in a burst keep their objective."""
