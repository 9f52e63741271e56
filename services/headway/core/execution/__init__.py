"""How a training plan runs: what every rank does in one iteration, in which order."""
