"""How far a request is suspected of taking workers down."""

from enum import StrEnum


class Suspicion(StrEnum):
    """A suspect was on a worker that died; one that is sealed has taken down a second one, and goes to no other."""

    SUSPECT = "suspect"
    SEALED = "sealed"
