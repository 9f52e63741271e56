"""Rows of logits that have no largest: a broken checkpoint, or weights beyond the range of their type, make them NaN or
infinite. Such a row ends its own sequence; tokens must not be drawn from it."""

import math
from typing import Final

import torch
from torch import Tensor

from headway.engine.batch import Sample

NO_TOKEN: Final = -1

_NO_NUMBERS = (
    "The model's logits for this request are no finite numbers: its weights are broken, or too large for their type."
)
_NOTHING_ALLOWED = "No token is left that the constraints of this request allow."


def without_broken(token_ids: Tensor, largest: Tensor) -> Tensor:
    """The tokens of the largest logits, int64 [R], and `NO_TOKEN` where those, [R], are no finite numbers."""
    if math.isfinite(largest.sum().item()):  # then each is; to ask each takes five operators more, in every step
        return token_ids
    return torch.where(largest.isfinite(), token_ids, NO_TOKEN)


def broken_sample(largest: float = math.nan) -> Sample:
    """Returns the sample of a sequence whose row is broken: no token, and an error that says why. `largest` is the
    largest of its logits after constraints have ruled some out.
    """
    return Sample((), error=_NOTHING_ALLOWED if largest == -math.inf else _NO_NUMBERS)
