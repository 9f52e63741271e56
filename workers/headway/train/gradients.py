"""The gradients of one rank's parameters: summed over its runs, then over the ranks that hold the same ones."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import itemgetter

import torch

from headway.core.execution.execution import ActionKind, Execution
from headway.core.execution.zero import sharing_rows
from headway.train.device import CPU
from headway.train.links import Links, Pending
from headway.train.shard import Shard


def reduce_groups(execution: Execution) -> list[tuple[int, ...]]:
    """The sets of ranks that add up gradients together, or have parts of the same parameters, in an order that is the
    same everywhere."""
    actions = (action for each in execution.ranks for action in each.actions)
    adding = {action.ranks for action in actions if action.kind is ActionKind.REDUCE}
    return sorted(adding | sharing_rows(execution.stages))


class Gradients:
    """Those that the same ranks add up together lie in one tensor, so that it travels as one.

    Args:
        parameters: of this rank, by name; of one that others have parts of, this rank's part.
        device: of these.

    Attributes:
        by_name: of all parameters, what parts add theirs to; of those in `shards` this rank's own sums.
        shards: parameters of which this rank changes a part.
    """

    def __init__(
        self, execution: Execution, rank: int, parameters: Mapping[str, torch.Tensor], *, device: torch.device = CPU
    ) -> None:
        self._device = device
        self.by_name: dict[str, torch.Tensor] = {}
        self.shards: list[Shard] = []
        self._buckets: list[torch.Tensor] = []
        self._shared: dict[tuple[int, ...], list[torch.Tensor | Shard]] = {}
        self._queues: dict[tuple[int, ...], list[torch.Tensor | Shard]] = {}
        self._coming: list[tuple[tuple[int, ...], Pending]] = []
        reduced = [a for a in execution.ranks[rank].actions if a.kind is ActionKind.REDUCE]
        for action in reduced:
            parts = len(action.ranks) if action.shards else 1
            bucket = self._bucket(action.parameters, parameters, parts)
            queue = self._shared.setdefault(action.ranks, [])
            if action.shards:
                given = {name: parameters[name] for name in action.parameters}
                self.shards.append(Shard(given, bucket, ranks=action.ranks, rank=rank))
                queue.append(self.shards[-1])
            else:
                queue.append(bucket)
        alone = [name for name in parameters if name not in self.by_name]
        self._bucket(alone, parameters)

    def clear(self) -> None:
        for bucket in self._buckets:
            bucket.zero_()
        self._queues = {ranks: list(buckets) for ranks, buckets in self._shared.items()}

    def add_up(self, ranks: tuple[int, ...], links: Links) -> None:
        """Begins to add up the next bucket of these ranks."""
        bucket = self._queues[ranks].pop(0)
        if isinstance(bucket, Shard):
            self._coming.append((ranks, links.add_up_parts(bucket.summands, ranks)))
        else:
            self._coming.append((ranks, links.add_up(bucket, ranks)))

    def wait(self) -> None:
        """Of several sets of ranks one after the other, in an order that is the same on all: a sum of parts goes on
        only where it is waited for."""
        for _, pending in sorted(self._coming, key=itemgetter(0)):
            pending.wait("gradients to be added up")
        self._coming.clear()

    def _bucket(self, names: Sequence[str], parameters: Mapping[str, torch.Tensor], parts: int = 1) -> torch.Tensor:
        """Args:
        parts: equal ones that it has, with zeros at its end.
        """
        dtype = reduce(torch.promote_types, (parameters[name].dtype for name in names), torch.bfloat16)
        sizes = [parameters[name].numel() for name in names]
        bucket = torch.zeros(-(-sum(sizes) // parts) * parts, dtype=dtype, device=self._device)
        pieces = torch.split(bucket[: sum(sizes)], sizes) if names else ()
        for name, piece in zip(names, pieces, strict=True):
            self.by_name[name] = piece.view(parameters[name].shape)
        self._buckets.append(bucket)
        return bucket
