"""Parameters of which ranks hold parts: cut from what a checkpoint has, and put together for one."""

from collections.abc import Iterator, Mapping, Sequence

import torch

from headway.core.execution.execution import Execution
from headway.core.sharding_spec import ShardingSpec
from headway.train.links import Links
from headway.train.optimizer import STEP
from headway.train.shard import PIECE, Shard
from headway.train.team import Team

Tensors = Mapping[str, torch.Tensor]


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
        self, state: Tensors, step: int, kinds: Sequence[str], shards: Sequence[Shard], links: Links
    ) -> dict[str, torch.Tensor]:
        """An optimizer's state by 'KEY/NAME', of whole parameters. Pieces of parameters that no team has parts of stay
        pieces.

        Args:
            step: how often parameters were changed.
            kinds: the keys of what is kept for each parameter in its shape.
            shards: parts that ranks share the optimizer's state of.
        """
        found = {key: value for key, value in state.items() if PIECE not in key or _name(key) not in self._own}
        for shard in shards:
            for name in (name for name in shard.parameters if name in self._own):
                for kind in kinds:
                    found[f"{kind}/{name}"] = _put_together(shard, kind, name, state, links)
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


def _put_together(shard: Shard, kind: str, name: str, state: Tensors, links: Links) -> torch.Tensor:
    """What the ranks of a shard keep for one of its parameters, as all of them: each adds what it has to zeros."""
    found = torch.zeros_like(shard.parameters[name]).flatten()
    for key, value in state.items():
        if key.startswith(f"{kind}/{name}{PIECE}"):
            first = int(key.rpartition(PIECE)[2])
            found[first : first + value.numel()] = value
    links.add_up(found, shard.ranks).wait("a part of the optimizer's state")
    return found.view(shard.parameters[name].shape)
