"""The protocol of a decoder network, as the runner and the loader use it."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from headway.core.model import ModelSpec
from headway.models.attention import AttentionContext, LayerCache
from headway.models.layout import Layout
from headway.models.linear import Linear
from headway.models.weights import Tensors

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Model(Protocol):
    """A decoder-only transformer over a flat batch: T tokens of ragged sequences, no padding.

    A rank has t of the tokens outside attention: all T, unless ranks that share the cache have each their own.
    """

    def __init__(self, spec: ModelSpec, *, layout: Layout, device: torch.device) -> None: ...

    def forward(
        self,
        token_ids: Tensor,
        attention: AttentionContext,
        kv_cache: Sequence[LayerCache],
        *,
        entering: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """The last stage: hidden states after the final norm, [t, hidden]. Another: the residual stream, [t, hidden],
        which the next stage goes on with. Either way the same on every rank of the stage with the same tokens.

        Args:
            token_ids: [t] int64.
            kv_cache: one entry for each of the stage's layers; the tokens' keys and values are written into it.
            entering: the residual stream that the stage before gave; overwritten. None for the first stage, which
                embeds the tokens.
            rows: [S] int64, those of the t tokens whose hidden states are wanted of the last stage; the result is then
                [S, hidden], and the last layer leaves the others out once their keys and values are written.
        """

    def compute_logits(self, hidden: Tensor) -> Tensor | None:
        """hidden [S, hidden] -> float32 [S, vocab_size] at the first rank of `layout.head`, None elsewhere.

        Every stage has a part in it; `hidden` is what the last one gave.
        """

    def largest_logits(self, hidden: Tensor) -> tuple[Tensor, Tensor] | None:
        """hidden [S, hidden] -> each row's largest of `compute_logits`, [S], and its token, the first of equals, int64
        [S]; without making all of them where that can be helped. A NaN is the largest."""

    def tensors(self) -> Tensors:
        """Returns the parameters that each tensor of a checkpoint fills, by name; tensors that this rank has no part of
        are left out.
        """

    def linears(self) -> list[Linear]:
        """The layers to pack once everything is loaded."""
