"""The orders in which the emulation's threads take turns: a result that depends on it has a race."""

SCHEDULES = (0, 1, 20)  # in order, backwards, and at random
