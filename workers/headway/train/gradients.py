"""The gradients of one rank's parameters: summed over its runs, then over the ranks that hold the same ones."""

from collections.abc import Mapping, Sequence
from functools import reduce

import torch

from headway.core.execution.execution import ActionKind, Execution
from headway.train.links import Links, Pending


class Gradients:
    """Those that the same ranks add up together lie in one tensor, so that it travels as one.

    Args:
        parameters: of this rank, by name.
    """

    def __init__(self, execution: Execution, rank: int, parameters: Mapping[str, torch.Tensor]) -> None:
        self.by_name: dict[str, torch.Tensor] = {}
        self._buckets: list[torch.Tensor] = []
        self._shared: dict[tuple[int, ...], list[torch.Tensor]] = {}
        self._queues: dict[tuple[int, ...], list[torch.Tensor]] = {}
        self._coming: list[Pending] = []
        reduced = [a for a in execution.ranks[rank].actions if a.kind is ActionKind.REDUCE]
        for action in reduced:
            self._shared.setdefault(action.ranks, []).append(self._bucket(action.parameters, parameters))
        alone = [name for name in parameters if name not in self.by_name]
        self._bucket(alone, parameters)

    def clear(self) -> None:
        for bucket in self._buckets:
            bucket.zero_()
        self._queues = {ranks: list(buckets) for ranks, buckets in self._shared.items()}

    def add(self, names: Sequence[str], values: Sequence[torch.Tensor]) -> None:
        for name, value in zip(names, values, strict=True):
            self.by_name[name].add_(value)

    def add_up(self, ranks: tuple[int, ...], links: Links) -> None:
        """Begins to add up the next bucket of these ranks."""
        self._coming.append(links.add_up(self._queues[ranks].pop(0), ranks))

    def wait(self) -> None:
        for pending in self._coming:
            pending.wait("gradients to be added up")
        self._coming.clear()

    def _bucket(self, names: Sequence[str], parameters: Mapping[str, torch.Tensor]) -> torch.Tensor:
        dtype = reduce(torch.promote_types, (parameters[name].dtype for name in names), torch.bfloat16)
        sizes = [parameters[name].numel() for name in names]
        bucket = torch.zeros(sum(sizes), dtype=dtype)
        pieces = torch.split(bucket, sizes) if names else ()
        for name, piece in zip(names, pieces, strict=True):
            self.by_name[name] = piece.view(parameters[name].shape)
        self._buckets.append(bucket)
        return bucket
