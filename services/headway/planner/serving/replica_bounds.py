"""How many replicas a model may have."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBounds:
    """How many replicas a model has at least and at most; None for as many as there are groups."""

    least: int = 1
    most: int | None = None

    def allows(self, num_replicas: int) -> bool:
        return self.least <= num_replicas and not self.is_above(num_replicas)

    def is_above(self, num_replicas: int) -> bool:
        return self.most is not None and num_replicas > self.most
