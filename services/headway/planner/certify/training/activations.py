"""Counts what a stage keeps of each micro-batch, and what one micro-batch needs beside that while it is computed."""

from collections.abc import Iterator
from itertools import accumulate

from headway.planner.certify.training.held import HeldTensors
from headway.planner.certify.training.state_bytes import numbers_of, weight_bytes


def activation_bytes(held: HeldTensors) -> float:
    """Bytes that each device keeps of one micro-batch from its forward pass to its backward pass."""
    return sum(held.num_bytes(name) for name in held.kept)


def workspace_bytes(held: HeldTensors) -> float:
    """How far the peak of one micro-batch, over the stage's operators, is above what it keeps between its passes.

    Counted is all that is live, with parameters that ZeRO gathers layer by layer and gradients it is yet to scatter.
    """
    changes = [0.0] * (len(held.operators) + 1)
    for name in held.names:
        for first, last in _intervals(held, name):
            changes[first] += held.num_bytes(name)
            changes[last + 1] -= held.num_bytes(name)
    live = accumulate(changes)
    peak = max((a + b for a, b in zip(live, _gathered_bytes(held), strict=False)), default=0.0)
    return max(0.0, peak - activation_bytes(held))


def _intervals(held: HeldTensors, name: str) -> Iterator[tuple[int, int]]:
    """The operators, by position in the stage, from the one that makes a tensor to the last that reads it. What is
    computed again is held twice: in the forward pass, and from the first backward operator that needs its layer on. A
    parameter's gradient is added up at once, or in ZeRO 2 and 3 scattered when its layer is done.
    """
    read = held.read_at.get(name, [])
    first = held.made_at[name] if name in held.made_at else read[0]
    if name in held.scattered:
        yield first, held.last_at[held.layers_at[first]]
    elif held.stage.recomputes and name in held.saved and name not in held.kept:
        yield first, max([first, *(at for at in read if not held.operators[at].is_backward)])
        yield held.needed_from[held.layer_of[name]], max(read)
    else:
        yield first, max([first, *read])


def _gathered_bytes(held: HeldTensors) -> list[float]:
    """For each operator the bytes of its layer's parameters in ZeRO 3, which are whole meanwhile, and of those of the
    larger one beside it, which is gathered next.
    """
    step, width = held.step, weight_bytes(held.step.plan.precision)
    sharded = {each.parameter: each for each in held.stage.parameters if each.zero_stage >= 3}
    names: dict[int, set[str]] = {}
    for layer, operator in zip(held.layers_at, held.operators, strict=True):
        names.setdefault(layer, set()).update(name for name in operator.inputs if name in sharded)
    whole = {
        layer: sum(width * numbers_of(step, held.stage, sharded[name])[0] for name in read)
        for layer, read in names.items()
    }
    return [whole[layer] + max(whole.get(layer - 1, 0.0), whole.get(layer + 1, 0.0)) for layer in held.layers_at]
