"""One network in several processes: how its ranks meet, talk, and keep in step."""
