"""The protocol of an encoder network, as its runner uses it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from headway.core.model import ModelSpec
from headway.models.layout import Layout
from headway.models.linear import Linear
from headway.models.weights import Tensors


@dataclass(frozen=True, slots=True)
class SequenceRun:
    """Neighbouring sequences of equal length in a flat batch."""

    first_token: int
    num_sequences: int
    length: int

    @property
    def end_token(self) -> int:
        return self.first_token + self.num_sequences * self.length


@dataclass(frozen=True, slots=True)
class EncoderBatch:
    """T tokens of B sequences, one after the other, no padding.

    Attributes:
        token_ids, positions, token_type_ids: [T] int64; positions count from 0 in each sequence.
        first_rows: [B] int64, where each sequence begins.
        lengths: [B] int64.
        runs: the sequences again, those of equal length together; they cover the batch in order.
    """

    token_ids: Tensor
    positions: Tensor
    token_type_ids: Tensor
    first_rows: Tensor
    lengths: Tensor
    runs: tuple[SequenceRun, ...]


class EncoderAttention(Protocol):
    """Attention over the sequences of one batch."""

    def __call__(self, qkv: Tensor, heads: tuple[int, int]) -> Tensor:
        """qkv [T, 3 * heads * head_dim] -> [T, heads * head_dim]; `heads` are their number and head_dim."""


EncoderBody: TypeAlias = Callable[[Tensor, EncoderBatch], Tensor]
"""Embedded tokens [T, hidden] and their batch -> hidden states of the last layer, [T, hidden], or of the first token of
each sequence, [B, hidden]."""


class Encoder(Protocol):
    """A rank's part of a transformer whose tokens see the whole of their own sequence."""

    def __init__(self, spec: ModelSpec, *, layout: Layout, device: torch.device) -> None: ...

    def forward(self, batch: EncoderBatch, *, entering: Tensor | None = None) -> Tensor:
        """The last stage: float32 [B, hidden] embeddings, or [B, labels] scores. Another: the hidden states, [T,
        hidden], which the next stage goes on with.

        Args:
            entering: the hidden states that the stage before gave; None for the first stage, which embeds the tokens.
        """

    @property
    def gives_first_rows(self) -> bool:
        """Whether the last layer gives the hidden state of each sequence's first token only."""

    def embed(self, batch: EncoderBatch) -> Tensor:
        """What the first rank's layers begin with, [T, hidden]."""

    def run_layers(self, hidden: Tensor, batch: EncoderBatch) -> Tensor:
        """The body that it has by itself; see `EncoderBody`."""

    def layers(self, hidden: Tensor, attend: EncoderAttention, *, rows: Tensor | None) -> Tensor:
        """hidden [T, hidden] through this rank's layers; of the last one only `rows`, where there are any."""

    def run_on(self, body: EncoderBody) -> None:
        """Has a body take the place of the layers, whose weights are dropped."""

    def tensors(self) -> Tensors:
        """Returns the parameters that each tensor of a checkpoint fills, by name."""

    def linears(self) -> list[Linear]:
        """The layers to pack once everything is loaded."""
