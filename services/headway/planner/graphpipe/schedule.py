"""The order in which a stage runs forward and backward passes, and how long a pipeline then takes (GraphPipe
section 6; thesis section 3.10.1). Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

Passes = tuple[bool, ...]  # True for a forward pass; those of one kind run in the order of their micro-batches


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledStage:
    """Attributes:
    micro_batch: samples.
    forward_s, backward_s: of one micro-batch.
    passes: of all micro-batches of an iteration.
    successors: places of the stages that wait for it, behind its own.
    """

    micro_batch: int
    forward_s: float
    backward_s: float
    passes: Passes
    successors: tuple[int, ...] = ()

    @property
    def in_flight(self) -> int:
        """Samples whose activations it holds at the same time."""
        held = np.cumsum(np.where(self.passes, self.micro_batch, -self.micro_batch))
        return int(held.max())


def kfkb(num_micro_batches: int, *, warm_up: int, k: int = 1) -> Passes:
    """So many forward passes, then k backward and k forward ones in turn, and the backward passes that are left."""
    passes = [True] * min(warm_up, num_micro_batches)
    forward, backward = len(passes), 0
    while backward < num_micro_batches:
        turn = min(k, num_micro_batches - backward, forward - backward)
        passes += [False] * turn
        backward += turn
        more = min(k, num_micro_batches - forward)
        passes += [True] * more
        forward += more
    return tuple(passes)


def iteration_s(stages: Sequence[ScheduledStage]) -> float:
    """Seconds until the last pass ends; infinite where stages wait for each other for ever."""
    return max(stage_ends(stages))


def stage_ends(stages: Sequence[ScheduledStage]) -> list[float]:
    """When each stage ends its last pass.

    A forward pass waits for all predecessors to have its samples, a backward pass for all successors' gradients (C5);
    passes of one stage run one at a time in their order (C4).
    """
    before = [[at for at, other in enumerate(stages) if number in other.successors] for number in range(len(stages))]
    ends = [([0.0], [0.0]) for _ in stages]  # of forward and backward passes; the first is that of no samples
    done, free_s = [0] * len(stages), [0.0] * len(stages)
    waiting = list(range(len(stages)))
    while waiting:
        number = waiting.pop()
        stage = stages[number]
        at = done[number]
        while done[number] < len(stage.passes):
            is_forward = stage.passes[done[number]]
            own = ends[number][0 if is_forward else 1]
            samples = len(own) * stage.micro_batch
            ready_s = _ready_s(
                stages, ends, before[number] if is_forward else stage.successors, samples, is_forward=is_forward
            )
            if ready_s is None:
                break
            took_s = stage.forward_s if is_forward else stage.backward_s
            free_s[number] = max(free_s[number], ready_s) + took_s
            own.append(free_s[number])
            done[number] += 1
        if done[number] > at:
            waiting += [other for other in (*before[number], *stage.successors) if other not in waiting]
    return [free_s[number] if done[number] == len(stage.passes) else np.inf for number, stage in enumerate(stages)]


def first_end(stage: ScheduledStage, passes: Passes, later: Sequence[ScheduledStage]) -> float:
    """When a stage ends with these passes, before others; its successors are places in `later`."""
    return stage_ends(in_front(replace(stage, passes=passes), later))[0]


def in_front(stage: ScheduledStage, later: Sequence[ScheduledStage]) -> list[ScheduledStage]:
    """A stage and those behind it; its successors are places in `later`."""
    return [replace(each, successors=tuple(at + 1 for at in each.successors)) for each in (stage, *later)]


def _ready_s(
    stages: Sequence[ScheduledStage],
    ends: Sequence[tuple[list[float], list[float]]],
    others: Sequence[int],
    samples: int,
    *,
    is_forward: bool,
) -> float | None:
    """When other stages have so many samples; None where that is not known yet."""
    ready_s = 0.0
    for other in others:
        theirs = ends[other][0 if is_forward else 1]
        needed = -(-samples // stages[other].micro_batch)
        if needed >= len(theirs):
            return None
        ready_s = max(ready_s, theirs[needed])
    return ready_s


def greedy_passes(stage: ScheduledStage, later: Sequence[ScheduledStage], *, batch: int) -> Passes:
    """Thesis algorithm 4: backward passes as early as the shortest time of the stage allows, so that it holds least.

    Args:
        stage: its passes are not read; its successors are places in `later`.
        later: scheduled stages, each before its successors.
    """
    number = batch // stage.micro_batch

    def ends_s(passes: Sequence[bool]) -> float:
        return first_end(stage, tuple(passes), later)

    best_s = min(ends_s(kfkb(number, warm_up=warm_up)) for warm_up in range(1, number + 1))
    passes = [True]
    forward, backward = 1, 0
    while len(passes) < 2 * number:
        tried = [*passes, False, *_one_by_one(number - forward, number - backward - 1)]
        if backward < forward and ends_s(tried) <= best_s * (1 + 1e-9):
            passes.append(False)
            backward += 1
        else:
            passes.append(True)
            forward += 1
    return tuple(passes)


def _one_by_one(forward: int, backward: int) -> list[bool]:
    """A forward and a backward pass in turn, then the backward passes that are left."""
    both = [True, False] * min(forward, backward)
    return both + [True] * max(0, forward - backward) + [False] * max(0, backward - forward)
