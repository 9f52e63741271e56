"""Whether a loss is a mean over examples: batches are computed in micro-batches, whose losses are averaged."""

import inspect
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from headway.core.errors import InvalidArgumentError
from headway.profiler.capture.trace import TARGETS

_IGNORED = -100
_TOLERANCE = 0.02
"""More than bfloat16 rounds off, and than terms that balance experts over a batch differ by."""


def check_mean_loss(module: nn.Module, inputs: Sequence[Any], *, field: str) -> None:
    """Compares the loss of two examples with the mean of the losses of each, weighed by their targets that are not
    -100. Nothing is said of a module that gives no single number, or that cannot be computed with these inputs.

    Args:
        module: with values; it is left as it was.
        inputs: of its forward function, with examples along dim 0.

    Raises:
        InvalidArgumentError: they are far from each other.
    """
    if any(not isinstance(each, torch.Tensor) or not each.ndim or not len(each) for each in inputs):
        return
    modes = {child: child.training for child in module.modules()}
    module.eval()  # what is random would differ
    try:
        together, first, second = (_loss(module, inputs, rows) for rows in ((0, 1), (0,), (1,)))
    except Exception:  # noqa: BLE001 - whatever the user's module raises, training says with its data
        return
    finally:
        for child, is_training in modes.items():
            child.training = is_training
    weights = [_num_targets(module, inputs, row) for row in (0, 1)]
    if not sum(weights):
        return
    mean = (weights[0] * first + weights[1] * second) / sum(weights)
    if abs(together - mean) > _TOLERANCE * max(abs(together), abs(mean)):
        raise InvalidArgumentError(
            f"The loss of {type(module).__name__} is no mean over examples: it is {together:.4g} for two, and "
            f"{first:.4g} and {second:.4g} for each alone.",
            hint="A batch is computed in micro-batches, whose losses are averaged. Give the mean over the examples, or "
            f"over those entries of an input named '{TARGETS}' that are not {_IGNORED}.",
            field=field,
        )


@torch.no_grad()
def _loss(module: nn.Module, inputs: Sequence[torch.Tensor], rows: Sequence[int]) -> float:
    """NaN where the module gives no single number."""
    outputs = pytree.tree_leaves(module(*(each[[row % len(each) for row in rows]] for each in inputs)))
    scalars = [each for each in outputs if isinstance(each, torch.Tensor) and each.ndim == 0]
    return float(scalars[0]) if scalars else math.nan


def _num_targets(module: nn.Module, inputs: Sequence[torch.Tensor], row: int) -> int:
    """Over how many an example's loss is a mean; 1 where targets are not named."""
    named = dict(zip(inspect.signature(module.forward).parameters, inputs, strict=False))
    targets = named.get(TARGETS)
    if targets is None or targets.is_floating_point():
        return 1
    return int((targets[row % len(targets)] != _IGNORED).sum())
