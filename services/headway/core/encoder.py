"""The output of an encoder: an embedding, or a score for each label, made of its hidden states."""

from dataclasses import dataclass
from enum import StrEnum


class Pooling(StrEnum):
    """The way in which the hidden states of a sequence become one vector."""

    MEAN = "mean"
    CLS = "cls"  # the first token's
    MAX = "max"


class ScoreFunction(StrEnum):
    """The function that turns a classifier's logits into scores."""

    SIGMOID = "sigmoid"
    SOFTMAX = "softmax"
    IDENTITY = "identity"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """The part of a model's shape that only encoders have.

    Attributes:
        num_positions: rows of the position table.
        position_offset: row of a sequence's first token; the rows before it belong to padding (RoBERTa).
        num_token_types: rows of the token-type table; 0 for none.
        pooling: what the embedding, or the classifier, is made from.
        normalizes: whether embeddings are scaled to length 1.
        labels: of a classifier, in the order of its logits; empty for embeddings.
        score_function: of a classifier.
    """

    num_positions: int
    position_offset: int = 0
    num_token_types: int = 0
    pooling: Pooling = Pooling.MEAN
    normalizes: bool = False
    labels: tuple[str, ...] = ()
    score_function: ScoreFunction = ScoreFunction.IDENTITY

    @property
    def can_rerank(self) -> bool:
        """Whether the model judges a pair of texts by one number."""
        return len(self.labels) == 1
