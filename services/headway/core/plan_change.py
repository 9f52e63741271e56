"""The changes that another plan brings."""

from dataclasses import dataclass
from enum import StrEnum


class ChangeKind(StrEnum):
    """The change to a model on a group of workers."""

    KEEP = "keep"
    LOAD = "load"
    RELOAD = "reload"
    """It is there, and with another memory or other limits."""
    DRAIN = "drain"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """The change to one model on one group.

    Attributes:
        worker_ids: the group's workers, by rank.
        memory_bytes: the memory that the model takes on each of them; empty for one that is drained.
        pauses: whether nobody serves the model for a while, because its place has to be free first.
    """

    kind: ChangeKind
    model: str
    worker_ids: tuple[str, ...]
    memory_bytes: tuple[int, ...] = ()
    pauses: bool = False
