"""The networks of the family `headway.profiler.zoo.families.multimodal`."""

import torch
from torch import Tensor, nn

from headway.profiler.zoo.families.multimodal import MultiModalConfig
from headway.profiler.zoo.networks.attention import Attention
from headway.profiler.zoo.networks.feed_forward import Mlp
from headway.profiler.zoo.networks.transformer import Layer, layer_norms


class MultiModal(nn.Module):
    def __init__(self, config: MultiModalConfig) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(*(_layer(config) for _ in range(config.num_layers))) for _ in range(config.num_branches)
        )

    def forward(self, *features: Tensor) -> Tensor:
        """Features [batch, seq, hidden] of each branch to [batch, seq, branches * hidden]."""
        outputs = [branch(x) for branch, x in zip(self.branches, features, strict=True)]
        return torch.cat(outputs, dim=-1)


def _layer(config: MultiModalConfig) -> nn.Module:
    attention, mlp = Attention(config.hidden, config.num_heads), Mlp(config.hidden, config.inner)
    return nn.Sequential(attention, mlp) if config.is_plain else Layer(attention, mlp, norms=layer_norms(config.hidden))
