"""Counts what a stage keeps of each micro-batch, and what one micro-batch needs beside that while it is computed."""

from collections.abc import Iterator
from itertools import accumulate

from headway.core.graph import Operator
from headway.core.plan.training import ParameterSharding
from headway.planner.certify.training.held import HeldTensors
from headway.planner.certify.training.state_bytes import GRADIENT_BYTES, numbers_of, weight_bytes


def activation_bytes(held: HeldTensors) -> float:
    """Bytes that each device keeps of one micro-batch from its forward pass to its backward pass."""
    return sum(held.num_bytes(name) for name in held.kept)


def workspace_bytes(held: HeldTensors) -> float:
    """Peak, over the stage's operators, of all that is live and not kept, with parameters that ZeRO gathers and
    gradients that it is yet to scatter.
    """
    changes = [0.0] * (len(held.operators) + 1)
    for name in held.names:
        if name not in held.kept:
            for first, last in _intervals(held, name):
                changes[first] += held.num_bytes(name)
                changes[last + 1] -= held.num_bytes(name)
    live = list(accumulate(changes))
    gathered = {each.parameter: each for each in held.stage.parameters if each.zero_stage >= 2}
    extra = [_gathered_bytes(held, operator, gathered) for operator in held.operators]
    return max((a + b for a, b in zip(live, extra, strict=False)), default=0.0)


def _intervals(held: HeldTensors, name: str) -> Iterator[tuple[int, int]]:
    """The operators, by position in the stage, from the one that makes a tensor to the last that reads it. What is
    computed again is held twice: in the forward pass, and from the first backward operator that needs its layer on.
    """
    read = held.read_at.get(name, [])
    first = held.made_at[name] if name in held.made_at else read[0]
    if not (held.stage.recomputes and name in held.saved):
        yield first, max([first, *read])
        return
    yield first, max([first, *(at for at in read if not held.operators[at].is_backward)])
    yield held.needed_from[held.layer_of[name]], max(read)


def _gathered_bytes(held: HeldTensors, operator: Operator, sharded: dict[str, ParameterSharding]) -> float:
    """Bytes of the parameters that are gathered for an operator, and of gradients that it makes before they are
    scattered.
    """
    step, width = held.step, weight_bytes(held.step.plan.precision)
    parameter_of = dict(zip(step.graph.gradients, step.graph.trained, strict=True))
    total = 0.0
    for name in operator.inputs:
        if name in sharded and sharded[name].zero_stage >= 3:
            numbers, copies = numbers_of(step, held.stage, sharded[name])
            total += width * numbers * (1 - 1 / copies)
    for name in operator.outputs:
        if parameter_of.get(name) in sharded:
            numbers, copies = numbers_of(step, held.stage, sharded[parameter_of[name]])
            total += GRADIENT_BYTES * numbers * (1 - 1 / copies)
    return total
