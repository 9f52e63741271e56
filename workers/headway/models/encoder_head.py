"""The last step of an encoder: a sequence's hidden states pooled to one vector, then normalised or scored."""

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from headway.core.encoder import EncoderSpec, Pooling, ScoreFunction
from headway.core.model import ModelFamily, ModelSpec
from headway.models.linear import Linear
from headway.models.weights import NamedPart

# Names in a checkpoint: of the layer over the first token, and of the one that gives logits.
_CLASSIFIER_NAMES = {
    ModelFamily.BERT: ("pooler.dense", "classifier"),
    ModelFamily.ROBERTA: ("classifier.dense", "classifier.out_proj"),
    ModelFamily.DISTILBERT: ("pre_classifier", "classifier"),
}


def pool(hidden: Tensor, pooling: Pooling, *, lengths: Tensor) -> Tensor:
    """hidden [T, hidden] -> float32 [B, hidden]; with CLS hidden is that of the first tokens, [B, hidden], already."""
    hidden = hidden.float()
    return hidden if pooling is Pooling.CLS else torch.segment_reduce(hidden, pooling.value, lengths=lengths)


class EncoderHead(Protocol):
    """The last step of an encoder: it turns hidden states into vectors."""

    def __call__(self, pooled: Tensor) -> Tensor:
        """pooled float32 [B, hidden] -> float32 [B, width]."""

    def named(self) -> Iterable[NamedPart]: ...

    def linears(self) -> list[Linear]: ...


def make_head(spec: ModelSpec, encoder: EncoderSpec, *, dtype: torch.dtype, device: torch.device) -> EncoderHead:
    if encoder.labels:
        return ClassifierHead(spec, encoder, dtype=dtype, device=device)
    return EmbeddingHead(normalizes=encoder.normalizes)


class EmbeddingHead:
    """The vector itself, or scaled to length 1."""

    def __init__(self, *, normalizes: bool) -> None:
        self._normalizes = normalizes

    def __call__(self, pooled: Tensor) -> Tensor:
        return functional.normalize(pooled, dim=1) if self._normalizes else pooled

    def named(self) -> Iterable[NamedPart]:
        return ()

    def linears(self) -> list[Linear]:
        return []


class ClassifierHead:
    """A classifier's head, which gives a score for each label."""

    def __init__(self, spec: ModelSpec, encoder: EncoderSpec, *, dtype: torch.dtype, device: torch.device) -> None:
        self._dense = Linear(spec.hidden_size, spec.hidden_size, bias=True, dtype=dtype, device=device)
        self._logits = Linear(spec.hidden_size, len(encoder.labels), bias=True, dtype=dtype, device=device)
        self._names = _CLASSIFIER_NAMES[spec.family]
        self._activate = torch.relu if spec.family is ModelFamily.DISTILBERT else torch.tanh
        self._score_function = encoder.score_function
        self._dtype = dtype

    def __call__(self, pooled: Tensor) -> Tensor:
        logits = self._logits(self._activate(self._dense(pooled.to(self._dtype)))).float()
        match self._score_function:
            case ScoreFunction.SIGMOID:
                return logits.sigmoid()
            case ScoreFunction.SOFTMAX:
                return logits.softmax(dim=1)
            case _:
                return logits

    def named(self) -> Iterable[NamedPart]:
        dense, logits = self._names
        yield from self._dense.named(dense)
        yield from self._logits.named(logits)

    def linears(self) -> list[Linear]:
        return [self._dense, self._logits]
