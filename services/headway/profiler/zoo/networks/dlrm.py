"""The networks of the family `headway.profiler.zoo.families.dlrm`."""

import torch
from torch import Tensor, nn

from headway.profiler.zoo.families.dlrm import DlrmConfig
from headway.profiler.zoo.networks.feed_forward import tower


class Dlrm(nn.Module):
    def __init__(self, config: DlrmConfig) -> None:
        super().__init__()
        self.dense = nn.ModuleList(
            tower(config.num_branch_layers, width_in=config.hidden, hidden=config.hidden)
            for _ in range(config.num_dense)
        )
        self.sparse = nn.ModuleList(
            nn.Embedding(config.num_entries, config.embedding) for _ in range(config.num_sparse)
        )
        width = config.num_dense * config.hidden + config.num_sparse * config.bag_size * config.embedding
        self.top = tower(config.num_top_layers, width_in=width, hidden=config.hidden)
        self.output = nn.Linear(config.hidden, 1)

    def forward(self, *features: Tensor) -> Tensor:
        """Features [batch, hidden] of each dense branch and entries [batch, bag] of each bag to logits [batch, 1]."""
        dense, sparse = features[: len(self.dense)], features[len(self.dense) :]
        outputs = [branch(x) for branch, x in zip(self.dense, dense, strict=True)]
        outputs += [bag(entries).flatten(1) for bag, entries in zip(self.sparse, sparse, strict=True)]
        return self.output(self.top(torch.cat(outputs, dim=-1)))  # type: ignore[no-any-return]
