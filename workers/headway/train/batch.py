"""One iteration's examples, and how much each run of the loss counts."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from headway.core.errors import InvalidArgumentError
from headway.core.execution.execution import ActionKind, Execution

TARGETS = "targets"
IGNORED = -100
"""A target that counts for nothing, as torch's cross-entropy has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Attributes:
    tensors: by name of the step's inputs; examples along dim 0.
    shares: by the first example of a run of the loss, its share of the iteration's loss; together 1.
    counted: over how much the loss is a mean: targets, or examples where there are none.
    """

    step: int
    tensors: Mapping[str, torch.Tensor]
    shares: Mapping[int, float]
    counted: int = 0


def make_batch(execution: Execution, step: int, tensors: Mapping[str, torch.Tensor]) -> Batch:
    """Shares go by examples, or where some targets are to be ignored by the others: a mean over all of them is no mean
    of the runs' means.

    Raises:
        InvalidArgumentError: the number of examples is wrong, or a run of the loss has no target at all.
    """
    for name, tensor in tensors.items():
        if tensor.shape[:1] != (execution.batch,):
            raise InvalidArgumentError(
                f"Step {step}: the data's '{name}' has {tensor.shape[0] if tensor.ndim else 'no'} examples, and an "
                f"iteration {execution.batch}.",
                hint="Let data and batch agree.",
                field="data",
            )
    examples = loss_examples(execution)
    firsts = range(0, execution.batch, examples)
    targets = tensors.get(TARGETS)
    if targets is None or targets.is_floating_point():
        shares = dict.fromkeys(firsts, examples / execution.batch)
        return Batch(step=step, tensors=tensors, shares=shares, counted=execution.batch)
    counted = targets != IGNORED
    total = int(counted.sum())
    counts = {first: int(counted[first : first + examples].sum()) for first in firsts}
    if empty := [first for first, count in counts.items() if not count]:
        raise InvalidArgumentError(
            f"Step {step}: examples {empty[0]} to {empty[0] + examples - 1} have no target.",
            hint="Leave such examples out, or make micro-batches larger.",
            field="data",
        )
    shares = {first: count / total for first, count in counts.items()}
    return Batch(step=step, tensors=tensors, shares=shares, counted=total)


def loss_examples(execution: Execution) -> int:
    """Examples of one run of the stage that has the loss."""
    (stage,) = {
        part.stage for part in execution.parts if part.kind is ActionKind.FORWARD and execution.loss in part.writes
    }
    return execution.stages[stage].examples
