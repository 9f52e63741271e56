"""The weights that a small Llama's training begins with, under the names of a Hugging Face checkpoint."""

import torch
from torch import Tensor

from headway.checkpoint.names import checkpoint_name
from headway.core.model import ModelSpec
from headway.profiler.zoo.networks.decoder import Decoder

INIT_STD = 0.02


def random_weights(spec: ModelSpec, *, seed: int) -> dict[str, Tensor]:
    """Matrices from N(0, INIT_STD), norms at one; a tied head is left out, as in Hugging Face's checkpoints."""
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        network = Decoder(spec)
    return {checkpoint_name(name): _drawn(each, generator) for name, each in network.named_parameters()}


def _drawn(like: Tensor, generator: torch.Generator) -> Tensor:
    if like.ndim < 2:
        return torch.ones(like.shape)
    return torch.empty(like.shape).normal_(std=INIT_STD, generator=generator)
