"""A request to a model that does not generate, and what comes back for it."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class TextInput:
    """A text, or two that are judged together, as a query and a document."""

    first: str
    second: str | None = None


InferInput: TypeAlias = TextInput | tuple[int, ...]
"""What a client sends: text, or token ids with the special ones among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferSequence:
    """One tokenised text, or a pair of them.

    Attributes:
        token_ids: at least one token, special ones included.
        token_type_ids: one for each token; empty where all are of type 0.
    """

    token_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """Sequences of one client; they may be computed in several steps.

    Attributes:
        request_id: unique; appears in every log line.
        model: served model name.
        slo_s: from its submission on, by which its answer must be there; None for no bound.
        priority: the lowest is first, where the queue goes by priorities.
    """

    request_id: str
    model: str
    sequences: tuple[InferSequence, ...]
    slo_s: float | None = None
    priority: int = 0

    @property
    def num_tokens(self) -> int:
        return sum(len(sequence.token_ids) for sequence in self.sequences)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferOutput:
    """The whole answer to one request.

    Attributes:
        vectors: one vector for each sequence, float32, little-endian; empty if it failed.
        error: message of a failure.
        is_late: whether it failed because it could no longer meet its objective.
    """

    request_id: str
    vectors: tuple[bytes, ...] = ()
    error: str = ""
    is_late: bool = False
