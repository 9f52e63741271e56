"""One iteration's examples, and how much each run of the loss counts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
    shares: by the slice and the first example of a run of the loss, what it counts in the iteration's loss.
    counted: over how much the loss is a mean: targets, or examples where there are none.
    """

    step: int
    tensors: Mapping[str, torch.Tensor]
    shares: Mapping[tuple[int, int], float]
    counted: int = 0

    def on(self, device: torch.device) -> "Batch":
        """The same with its tensors there."""
        return replace(self, tensors={name: tensor.to(device) for name, tensor in self.tensors.items()})


def make_batch(execution: Execution, step: int, tensors: Mapping[str, torch.Tensor]) -> Batch:
    """Shares go by examples and tokens, or where some targets are to be ignored by the others: a mean over all of them
    is no mean of the runs' means.

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
        lengths = [tokens / sum(execution.slices) for tokens in execution.slices] or [1.0]
        shares = {
            (place, first): examples / execution.batch * length
            for first in firsts
            for place, length in enumerate(lengths)
        }
        return Batch(step=step, tensors=tensors, shares=shares, counted=execution.batch)
    counted = targets != IGNORED
    total = int(counted.sum())
    parts = torch.split(counted, list(execution.slices), dim=1) if execution.slices else (counted,)
    counts = {
        (place, first): int(part[first : first + examples].sum())
        for first in firsts
        for place, part in enumerate(parts)
    }
    if execution.sums_losses and total:
        return Batch(step=step, tensors=tensors, shares=dict.fromkeys(counts, 1 / total), counted=total)
    if empty := [key for key, count in counts.items() if not count]:
        place, first = empty[0]
        where = f" in slice {place}" if execution.slices else ""
        raise InvalidArgumentError(
            f"Step {step}: examples {first} to {first + examples - 1} have no target{where}.",
            hint="Leave such examples out, or make micro-batches larger.",
            field="data",
        )
    shares = {key: count / total for key, count in counts.items()}
    return Batch(step=step, tensors=tensors, shares=shares, counted=total)


def loss_examples(execution: Execution) -> int:
    """Examples of one run of the stage that has the loss."""
    forward = (part for part in execution.parts if part.kind is ActionKind.FORWARD)
    stage = next(part.stage for part in forward if execution.losses[0] in part.writes)
    return execution.stages[stage].examples
