"""What an iteration takes whose micro-batches are cut into slices, and what it keeps: 1F1B with slices as units. Pure.

The dissertation keeps the activations of the whole mini-batch. With one slice forward and one backward in turn the
pipeline is as full, and a stage keeps those of its slices under way.
"""

from collections.abc import Sequence

import numpy as np

from headway.core.plan.training import SliceSeconds
from headway.planner.terapipe.kernel import one_forward_one_backward


def in_flight(after: int, tokens: Sequence[int], *, num_micro_batches: int) -> int:
    """Micro-batches whose activations a stage holds at most: those of all tokens under way, rounded up.

    Args:
        after: stages behind it.
        tokens: of each slice of a micro-batch.
    """
    num_slices = len(tokens)
    total = num_micro_batches * num_slices
    ahead = min(total, after + num_slices)
    held = most = sum(tokens[number % num_slices] for number in range(ahead))
    for returned in range(min(total - ahead, (after // num_slices + 3) * num_slices)):
        held += tokens[(ahead + returned) % num_slices] - tokens[num_slices - 1 - returned % num_slices]
        most = max(most, held)
    return -(-most // sum(tokens))


def pipeline_s(stages: Sequence[Sequence[SliceSeconds]], num_micro_batches: int) -> float:
    """Equation 2.5 for stages that differ: all slices on the slowest stage, and the slowest slice on each other one.

    Where simulating the schedule takes longer, as it may with slices that differ much, that counts.
    """
    seconds = np.array([[each.latency_s for each in stage] for stage in stages])
    slowest = int(seconds.sum(axis=1).argmax())
    others_s = float(np.delete(seconds, slowest, axis=0).max(axis=1, initial=0.0).sum())
    full_s = num_micro_batches * float(seconds[slowest].sum()) + others_s
    return max(full_s, simulated_s(stages, num_micro_batches))


def simulated_s(stages: Sequence[Sequence[SliceSeconds]], num_micro_batches: int) -> float:
    """Seconds of 1F1B whose units are slices; only who receives something waits for its being sent."""
    forward, backward, sent = (
        np.array([[getattr(each, name) for each in stage] for stage in stages])
        for name in ("forward_s", "backward_s", "handover_s")
    )
    return one_forward_one_backward(forward, backward, sent, num_micro_batches)
