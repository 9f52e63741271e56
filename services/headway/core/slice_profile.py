"""The latency of one layer for a slice of a sequence after others: TeraPipe's tables, and the fit through them."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from headway.core.catalogue.figure import Provenance
from headway.core.piecewise import PiecewiseLinear
from headway.core.slice_latency import ContextFit


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceTable:
    """Columns of equal length: seconds of one layer for `batch_size` slices of `slice_tokens` after `context_tokens`
    tokens each."""

    batch_size: tuple[int, ...]
    slice_tokens: tuple[int, ...]
    context_tokens: tuple[int, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    update_s: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.batch_size)

    def shapes(self) -> Iterator[tuple[int, int, int]]:
        """(batch size, slice tokens, context tokens) of each row."""
        return zip(self.batch_size, self.slice_tokens, self.context_tokens, strict=True)

    def without_context(self, seconds: tuple[float, ...]) -> dict[int, dict[int, float]]:
        """t(i, 0) out of one of the columns of seconds: by batch size, then by slice tokens."""
        alone: defaultdict[int, dict[int, float]] = defaultdict(dict)
        for (batch_size, slice_tokens, context_tokens), value in zip(self.shapes(), seconds, strict=True):
            if context_tokens == 0:
                alone[batch_size][slice_tokens] = value
        return dict(alone)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceProfile:
    """One setting: a model, and how it was split when its layer was timed.

    Attributes:
        setting: its name in the file that it came from.
        hardware: name of the device in the catalogue.
        batch: sequences of an iteration.
        op: devices that share each layer.
        pp: stages of the pipeline.
        communication: seconds to send the activations of so many tokens to the next stage.
        forward, backward: of the table; None where it has no slices with context.
    """

    profile_id: str
    model: str
    setting: str
    hardware: str
    batch: int
    op: int
    pp: int
    layers_per_stage: int
    seq_len: int
    table: SliceTable
    communication: PiecewiseLinear
    forward: ContextFit | None = None
    backward: ContextFit | None = None
    source: str
    provenance: Provenance
    created_at_s: float


def slice_profile_id(model: str, hardware: str, setting: str) -> str:
    """One for each setting: what is imported again replaces what was."""
    return hashlib.sha256(f"slices:{model}:{hardware}:{setting}".encode()).hexdigest()[:16]
