"""The layers of an encoder as one program of a kernel library, which takes any number of sequences of any lengths."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, fx, nn

from headway.backends.library import CompileOptions, Library
from headway.models.encoder import Encoder, EncoderBatch
from headway.models.encoder_attention import PaddedAttention

_NOTHING = -1e9
"""Added to the score of what is no token: it gets no attention."""
_VARYING = ((0,), (0, 1), (0, 3), (0,), (0,))
"""The dims of hidden, rows, mask, places and first rows that differ from batch to batch."""


class PaddedBody:
    """Runs an encoder's layers on a kernel library; implements `headway.models.encoder.EncoderBody`.

    Args:
        encoder: all of its layers, with weights that are torch's; the library has its own of them after.
        example: embedded tokens and their batch, of several sequences.

    Raises:
        Exception: whatever the library raises.
    """

    def __init__(
        self, library: Library, encoder: Encoder, example: tuple[Tensor, EncoderBatch], *, num_threads: int
    ) -> None:
        self._gives_first_rows = encoder.gives_first_rows
        layers = _FirstRows(encoder) if self._gives_first_rows else _Layers(encoder)
        inputs = self._inputs(*example)
        options = CompileOptions(num_threads=num_threads, varying=_VARYING[: len(inputs)])
        self._run = library.compile(fx.symbolic_trace(layers), inputs, options)

    def __call__(self, hidden: Tensor, batch: EncoderBatch) -> Tensor:
        return self._run(*self._inputs(hidden, batch))[0]

    def _inputs(self, hidden: Tensor, batch: EncoderBatch) -> Sequence[Tensor]:
        inputs = (hidden, *_padding(batch))
        return (*inputs, batch.first_rows) if self._gives_first_rows else inputs


def _padding(batch: EncoderBatch) -> tuple[Tensor, Tensor, Tensor]:
    """The rows, mask and places of `PaddedAttention`."""
    lengths, first_rows = batch.lengths.numpy()[:, None], batch.first_rows.numpy()[:, None]
    positions = np.arange(lengths.max())
    is_token = positions < lengths
    mask = np.where(is_token, np.float32(0), np.float32(_NOTHING))
    rows = np.where(is_token, first_rows + positions, first_rows)
    return torch.from_numpy(rows), torch.from_numpy(mask[:, None, None]), torch.from_numpy(np.flatnonzero(is_token))


class _Layers(nn.Module):
    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self._encoder = encoder

    def forward(self, hidden: Tensor, rows: Tensor, mask: Tensor, places: Tensor) -> tuple[Tensor]:
        return (self._encoder.layers(hidden, PaddedAttention(rows, mask, places), rows=None),)


class _FirstRows(_Layers):
    def forward(  # type: ignore[override]
        self, hidden: Tensor, rows: Tensor, mask: Tensor, places: Tensor, first_rows: Tensor
    ) -> tuple[Tensor]:
        return (self._encoder.layers(hidden, PaddedAttention(rows, mask, places), rows=first_rows),)
