"""Parameters of which ranks hold parts: cut from what a checkpoint has, and put together for one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import torch

from headway.core.execution.execution import Execution
from headway.core.sharding_spec import ShardingSpec
from headway.train.links import Links
from headway.train.optimizer import STEP
from headway.train.shard import PIECE
from headway.train.team import Team

Tensors = Mapping[str, torch.Tensor]


class Shared(Protocol):
    """Parameters of which ranks keep the optimizer's state in pieces."""

    @property
    def ranks(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def shapes(self) -> Mapping[str, torch.Size]:
        """By name."""


class Tiles:
    """One rank's parts of parameters. Ranks of a team put theirs together at the same time.

    Args:
        teams: by stage.
    """

    def __init__(self, execution: Execution, teams: Mapping[int, Team]) -> None:
        self._own: dict[str, tuple[Team, ShardingSpec]] = {}
        for number, team in teams.items():
            sharding = execution.stages[number].sharding
            assert sharding is not None
            cut = {each.tensor: each.spec for each in sharding.parameters if not each.spec.is_replicated}
            self._own |= {name: (team, cut[name]) for name in execution.stages[number].parameters if name in cut}

    def own(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """This rank's part of a whole parameter, or of what is kept for it."""
        if name not in self._own:
            return tensor
        team, spec = self._own[name]
        return team.own(tensor, spec)

    def own_state(self, state: Tensors, parameters: Tensors) -> dict[str, torch.Tensor]:
        """Of an optimizer's state by 'KEY/NAME'; of one dim where ranks shared it."""
        found = {}
        for key, value in state.items():
            name = key.partition("/")[2]
            is_cut = name in self._own and value.ndim > 0
            found[key] = self.own(name, value.view(parameters[name].shape)) if is_cut else value
        return found

    def whole(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        """Whole parameters, by name."""
        return dict(self._whole(tensors, {name: name for name in tensors}))

    def whole_state(
        self, state: Tensors, step: int, kinds: Sequence[str], shards: Sequence[Shared], links: Links
    ) -> dict[str, torch.Tensor]:
        """An optimizer's state by 'KEY/NAME', of whole parameters. Pieces of parameters that no team has parts of stay
        pieces.

        Args:
            step: how often parameters were changed.
            kinds: the keys of what is kept for each parameter in its shape.
            shards: what ranks share the optimizer's state of.
        """
        found = {key: value for key, value in state.items() if PIECE not in key or _name(key) not in self._own}
        for shard in shards:
            for name, shape in ((name, shape) for name, shape in shard.shapes.items() if name in self._own):
                for kind in kinds:
                    key = f"{kind}/{name}"
                    pieces = {k: value for k, value in state.items() if k.startswith(f"{key}{PIECE}")}
                    room = torch.zeros(shape, dtype=shard.dtype, device=links.device)
                    found[key] = _put_together(room, pieces, shard.ranks, links)
                found[f"{STEP}/{name}"] = torch.tensor(float(step))
        return dict(self._whole(found, {key: _name(key) for key in found}))

    def _whole(self, tensors: Tensors, names: Mapping[str, str]) -> Iterator[tuple[str, torch.Tensor]]:
        for key, tensor in tensors.items():
            if names[key] in self._own and tensor.ndim:
                team, spec = self._own[names[key]]
                yield key, team.whole(tensor, spec)
            else:
                yield key, tensor


def _name(key: str) -> str:
    """The parameter of a part of an optimizer's state."""
    return key.partition("/")[2].partition(PIECE)[0]


def _put_together(room: torch.Tensor, pieces: Tensors, ranks: tuple[int, ...], links: Links) -> torch.Tensor:
    """What ranks keep in pieces for a parameter, as a whole: each adds what it has to zeros.

    Args:
        room: zeros in the parameter's shape.
        pieces: of this rank.
    """
    for key, value in pieces.items():
        first = int(key.rpartition(PIECE)[2])
        room.view(-1)[first : first + value.numel()] = value
    links.add_up(room, ranks).wait("a part of the optimizer's state")
    return room
