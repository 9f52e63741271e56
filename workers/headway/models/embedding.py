"""The token embedding, its rows split over ranks."""

import torch
from torch import Tensor

from headway import kernels
from headway.core.model import ModelSpec
from headway.core.parallel_config import Span
from headway.models.layout import Layout
from headway.models.weights import Part, Piece


class VocabEmbedding:
    """Rows of the vocabulary that this rank has; those of other ranks count as zeros, and all are added up."""

    def __init__(self, spec: ModelSpec, *, layout: Layout, dtype: torch.dtype, device: torch.device) -> None:
        self._width = spec.embedding_dim or spec.hidden_size
        self._rows = Piece(layout.shard.vocab, spec.vocab_size)
        self._axis = layout.tensor
        self.weight = torch.empty(len(self._rows), self._width, dtype=dtype, device=device)

    def __call__(self, token_ids: Tensor) -> Tensor:
        """token_ids [T] -> a new [T, width]."""
        if self._axis.size == 1:
            return kernels.embed(token_ids, self.weight)
        own_ids = token_ids - self._rows.span.start
        is_elsewhere = (own_ids < 0) | (own_ids >= len(self._rows))
        out = kernels.embed(own_ids.masked_fill_(is_elsewhere, 0), self.weight)
        return self._axis.all_reduce(out.masked_fill_(is_elsewhere[:, None], 0), site="embedding")

    def rows(self, span: Span) -> Tensor | None:
        """The weight's rows of a part of the vocabulary, which it goes on sharing; None where not all are here."""
        own = self._rows.span
        if span.start < own.start or span.stop > own.stop:
            return None
        return self.weight[span.start - own.start : span.stop - own.start]

    @property
    def part(self) -> Part:
        return Part.of(self.weight, self._rows, Piece.whole(self._width))
