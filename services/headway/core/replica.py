"""The replicas of models on workers."""

from typing import NamedTuple


class ReplicaId(NamedTuple):
    """A model on a group, by the worker that leads it."""

    worker_id: str
    model: str
