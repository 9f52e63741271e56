"""The networks of the family `headway.profiler.zoo.families.candle_uno`."""

import torch
from torch import Tensor, nn

from headway.profiler.zoo.families.candle_uno import CandleUnoConfig
from headway.profiler.zoo.networks.feed_forward import tower


class CandleUno(nn.Module):
    def __init__(self, config: CandleUnoConfig) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            tower(config.num_layers, width_in=config.hidden, hidden=config.hidden) for _ in range(config.num_branches)
        )
        self.response = nn.Linear(config.num_branches * config.hidden, 1)

    def forward(self, *features: Tensor) -> Tensor:
        """Features [batch, hidden] of each branch to the predicted response [batch, 1]."""
        outputs = [branch(x) for branch, x in zip(self.branches, features, strict=True)]
        return self.response(torch.cat(outputs, dim=-1))  # type: ignore[no-any-return]
