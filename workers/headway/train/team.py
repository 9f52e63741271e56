"""How the ranks that compute a run together move values among them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch

from headway.core.execution.execution import ActionKind, Execution, StageSpec
from headway.core.execution.meetings import PLACES
from headway.core.execution.tiles import Move, MoveKind, moves
from headway.core.execution.zero import sharing_rows
from headway.core.sharding_spec import ShardingSpec
from headway.train.links import Links


class Team:
    """One rank's part in the moves of a stage's local programs, each along one axis of the stage's mesh."""

    def __init__(self, stage: StageSpec, rank: int, links: Links) -> None:
        assert stage.sharding is not None, "a stage without a mesh has no teams"
        self._sharding, self._links = stage.sharding, links
        self._coordinates = self._sharding.coordinates(stage.member(rank))
        self._rows = _rows(stage, rank)

    def functions(self) -> Mapping[str, Callable[..., torch.Tensor]]:
        """By the targets of local programs; each takes the tensor, an axis, and where that cuts the tensor."""
        return {
            MoveKind.GATHER.value: self._gather,
            MoveKind.EXCHANGE.value: self._exchange,
            MoveKind.SLICE.value: self._slice,
            MoveKind.SUM.value: self._sum,
            MoveKind.MAX.value: self._max,
            MoveKind.SCATTER.value: self._scatter,
            MoveKind.FIRST.value: self._first,
            MoveKind.SPREAD.value: self._spread,
            PLACES: self._places,
        }

    def whole(self, tensor: torch.Tensor, spec: ShardingSpec) -> torch.Tensor:
        """What lies so, put together; all ranks of the team call it."""
        return self._run(moves(spec, self._sharding.whole, self._sharding.mesh), tensor)

    def own(self, tensor: torch.Tensor, spec: ShardingSpec) -> torch.Tensor:
        """This rank's part of a whole tensor."""
        return self._run(moves(self._sharding.whole, spec, self._sharding.mesh), tensor)

    def _run(self, given: Iterable[Move], tensor: torch.Tensor) -> torch.Tensor:
        for move in given:
            tensor = self.functions()[move.kind.value](tensor, move.axis, move.dim, move.outer)
        return tensor

    def _gather(self, tensor: torch.Tensor, axis: int, dim: int, outer: int) -> torch.Tensor:
        return _joined(self._links.gather_row(tensor.contiguous(), self._rows[axis]), dim, outer)

    def _exchange(
        self, tensor: torch.Tensor, axis: int, dim: int, outer: int, to_dim: int, to_outer: int
    ) -> torch.Tensor:
        parts = [part.flatten(to_dim, to_dim + 1) for part in self._cut(tensor, axis, to_dim, to_outer)]
        return _joined(self._links.exchange_row(parts, self._rows[axis]).unbind(), dim, outer)

    def _slice(self, tensor: torch.Tensor, axis: int, dim: int, outer: int) -> torch.Tensor:
        return self._cut(tensor, axis, dim, outer)[self._coordinates[axis]].flatten(dim, dim + 1).contiguous()

    def _sum(self, tensor: torch.Tensor, axis: int, _dim: int, _outer: int) -> torch.Tensor:
        return self._links.add_up_row(tensor.contiguous(), self._rows[axis])

    def _max(self, tensor: torch.Tensor, axis: int, _dim: int, _outer: int) -> torch.Tensor:
        return torch.stack(self._links.gather_row(tensor.contiguous(), self._rows[axis])).amax(0)

    def _places(self, indices: torch.Tensor, axes: Sequence[int], size: int) -> torch.Tensor:
        """Less the first index of the part of `size` that this rank has of a dim which these axes cut, in order."""
        part = 0
        for axis in axes:
            part = part * self._sharding.mesh[axis] + self._coordinates[axis]
        return indices - part * size

    def _scatter(self, tensor: torch.Tensor, axis: int, dim: int, outer: int) -> torch.Tensor:
        parts = [part.flatten(dim, dim + 1).contiguous() for part in self._cut(tensor, axis, dim, outer)]
        return self._links.add_up_own(parts, self._rows[axis])

    def _first(self, tensor: torch.Tensor, axis: int, _dim: int, _outer: int) -> torch.Tensor:
        return tensor if self._coordinates[axis] == 0 else torch.zeros_like(tensor)

    def _spread(self, tensor: torch.Tensor, axis: int, dim: int, outer: int) -> torch.Tensor:
        shape = list(tensor.shape)
        shape[dim] *= self._sharding.mesh[axis]
        found = tensor.new_zeros(shape)
        self._cut(found, axis, dim, outer)[self._coordinates[axis]].copy_(_split(tensor, dim, (outer, -1)))
        return found

    def _cut(self, tensor: torch.Tensor, axis: int, dim: int, outer: int) -> tuple[torch.Tensor, ...]:
        """The parts of a whole along an axis, as views in which the cut dim is two: outer parts and what is inside."""
        return _split(tensor, dim, (outer, self._sharding.mesh[axis], -1)).unbind(dim + 1)


def all_rows(execution: Execution) -> list[tuple[int, ...]]:
    """The sets of ranks that move values along an axis, gather what they are sent, or have parts of parameters, in an
    order that is the same everywhere."""
    stages = [stage for stage in execution.stages if stage.sharding is not None]
    rows = {row for stage in stages for rank in stage.ranks for row in _rows(stage, rank)}
    gathering = {a.ranks for each in execution.ranks for a in each.actions if a.kind is ActionKind.GATHER}
    return sorted(rows | gathering | sharing_rows(execution.stages))


def teams_of(execution: Execution, rank: int, links: Links) -> dict[int, Team]:
    """Of each sharded stage of a rank its team."""
    return dict(_teams(execution, rank, links))


def _teams(execution: Execution, rank: int, links: Links) -> Iterator[tuple[int, Team]]:
    for number, stage in enumerate(execution.stages):
        if stage.sharding is not None and rank in stage.ranks:
            yield number, Team(stage, rank, links)


def _rows(stage: StageSpec, rank: int) -> list[tuple[int, ...]]:
    """Along each axis the ranks of a rank's team that differ from it in that axis only, in order."""
    assert stage.sharding is not None
    own, mesh = stage.sharding.coordinates(stage.member(rank)), stage.sharding.mesh
    places = [(stage.sharding.coordinates(member), each) for member, each in enumerate(stage.team(rank))]
    return [
        tuple(each for at, each in places if (*at[:axis], *at[axis + 1 :]) == (*own[:axis], *own[axis + 1 :]))
        for axis in range(len(mesh))
    ]


def _joined(parts: Sequence[torch.Tensor], dim: int, outer: int) -> torch.Tensor:
    """Parts of a dim, each of all of its outer parts, as the dim."""
    if outer == 1:
        return torch.cat(list(parts), dim)
    return torch.cat([_split(part, dim, (outer, -1)) for part in parts], dim + 1).flatten(dim, dim + 1)


def _split(tensor: torch.Tensor, dim: int, sizes: tuple[int, ...]) -> torch.Tensor:
    """One dim as several."""
    return tensor.view(*tensor.shape[:dim], *sizes, *tensor.shape[dim + 1 :])
