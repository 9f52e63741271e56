"""What running training plans costs beside their work, and how well it is predicted."""
