"""Parameters of which ranks hold parts: cut from what a checkpoint has, and put together for one."""

from collections.abc import Iterator, Mapping

import torch

from headway.core.execution.execution import Execution
from headway.core.sharding_spec import ShardingSpec
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

    def whole_state(self, state: Tensors) -> dict[str, torch.Tensor]:
        """An optimizer's state by 'KEY/NAME', of whole parameters."""
        return dict(self._whole(state, {key: key.partition("/")[2] for key in state}))

    def _whole(self, tensors: Tensors, names: Mapping[str, str]) -> Iterator[tuple[str, torch.Tensor]]:
        for key, tensor in tensors.items():
            if names[key] in self._own and tensor.ndim:
                team, spec = self._own[names[key]]
                yield key, team.whole(tensor, spec)
            else:
                yield key, tensor
