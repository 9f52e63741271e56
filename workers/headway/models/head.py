"""The layer that gives logits, its rows split over the ranks of all stages."""

import torch
from torch import Tensor
from torch.nn import functional

from headway.core.model import ModelSpec
from headway.core.parallel_config import split
from headway.models.embedding import VocabEmbedding
from headway.models.layout import Layout
from headway.models.linear import Linear
from headway.models.weights import NamedPart, Piece


class Head:
    """The output head. Each rank computes the logits of its part of the vocabulary; the first one collects them."""

    def __init__(
        self,
        spec: ModelSpec,
        embedding: VocabEmbedding | None,
        *,
        layout: Layout,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """`embedding`: shares its weight if the model's head is tied to it; None if it is in another stage."""
        self._axis = layout.head
        self._rows = Piece(layout.shard.head, spec.vocab_size)
        self._is_tied = spec.tied_embeddings
        shared = embedding.rows(self._rows.span) if embedding is not None and spec.tied_embeddings else None
        self._is_sharing = shared is not None
        self.linear = Linear(
            spec.embedding_dim or spec.hidden_size,
            len(self._rows),
            bias=False,
            dtype=dtype,
            device=device,
            is_searched=True,
            weight=shared,
        )

    def __call__(self, hidden: Tensor) -> Tensor | None:
        """hidden [S, width] -> float32 [S, vocab_size] at the first rank, None elsewhere."""
        logits = self.linear(hidden).float()
        return logits if self._axis.size == 1 else self._collect(logits)

    def largest(self, hidden: Tensor) -> tuple[Tensor, Tensor] | None:
        """hidden [S, width] -> the largest logit, [S], and its token, int64 [S], at the first rank; None elsewhere."""
        values, places = self.linear.largest(hidden)
        if self._axis.size == 1:
            return values, places
        token_ids = places + self._rows.span.start
        # float64 holds both exactly.
        gathered = self._axis.gather(torch.stack((values.double(), token_ids.double()), dim=1), site="best")
        if gathered is None:
            return None
        parts = torch.stack(gathered)
        rank = parts[:, :, 0].argmax(0, keepdim=True)
        return parts[:, :, 0].gather(0, rank)[0], parts[:, :, 1].gather(0, rank)[0].long()

    def _collect(self, logits: Tensor) -> Tensor | None:
        """Ranks send equal shapes: where others have one column more, this one's last is empty."""
        widths = [len(split(self._rows.size, parts=self._axis.size, index=rank)) for rank in range(self._axis.size)]
        num_missing = max(widths) - len(self._rows)
        padded = functional.pad(logits, (0, num_missing)) if num_missing else logits  # padding copies in any case
        gathered = self._axis.gather(padded, site="logits")
        if gathered is None:
            return None
        return torch.cat([columns[:, :width] for columns, width in zip(gathered, widths, strict=True)], dim=1)

    def named(self, name: str, *, embedding: str) -> list[NamedPart]:
        """Returns the stored tensor of the head: the tensor of that name, or the embedding's if tied; nothing if they
        share it.
        """
        if self._is_sharing:
            return []
        return list(self.linear.named(embedding if self._is_tied else name, rows=self._rows))
