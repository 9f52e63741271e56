"""Piper's search: chains of stages that are differences of downsets, so that a stage can hold parts of several branches
(Tarnawski et al. 2021, definition 4.1). Exact in GraphPipe's frame, and only for models with few downsets. Pure."""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from headway.core.errors import FailedPreconditionError
from headway.planner.graphpipe.kernel import NONE, Floats, Ints, devices_at, levels_of
from headway.planner.graphpipe.pipeline import GraphPipeline, StageChoice, make_chain
from headway.planner.graphpipe.problem import PipelineProblem

MOST_DOWNSETS = 3000
_LESS = 1 - 1e-9


def downsets(problem: PipelineProblem) -> list[int]:
    """Sets of operators that hold all that their members need, as bits, smaller ones first.

    Raises:
        FailedPreconditionError: there are too many: branches multiply them.
    """
    needs = [0] * problem.num_operators
    for before, after in problem.edges:
        needs[after] |= 1 << before
    found, front = {0}, {0}
    while front:
        front = {
            members | 1 << at
            for members in front
            for at in range(problem.num_operators)
            if not members >> at & 1 and needs[at] & ~members == 0
        }
        found |= front
        if len(found) > MOST_DOWNSETS:
            raise FailedPreconditionError(
                f"Piper's search takes at most {MOST_DOWNSETS} downsets, and this model has more.",
                hint="Branches multiply them: search with GraphPipe, or give fewer operators.",
            )
    return sorted(found, key=lambda members: (members.bit_count(), members))


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """All stages, by the downsets before and with them.

    Attributes:
        first, last: [stages]; places of the downsets, sorted by the first.
    """

    first: Ints
    last: Ints
    seconds: Floats
    held: Floats
    crossing: Floats


def search_downsets(problem: PipelineProblem, micro_batch: int) -> GraphPipeline | None:
    """The chain with the least time per sample; None where nothing fits.

    Raises:
        FailedPreconditionError: the model has too many downsets.
    """
    sets = downsets(problem)
    pairs = _pairs(problem, sets)
    best: GraphPipeline | None = None
    bound_s = low = high = np.inf
    while True:
        choices = _under(problem, sets, pairs, micro_batch, bound_s)
        if choices is not None:
            best = make_chain(problem, choices, micro_batch)
            high = best.time_per_sample
            low = 0.0 if low == np.inf else low
        elif best is None or bound_s >= high * _LESS:
            return best
        else:
            low = bound_s
        bound_s = (low + high) / 2 if high - low > 1e-3 * high else high * _LESS


def _pairs(problem: PipelineProblem, sets: list[int]) -> _Pairs:
    inside = np.array([[members >> at & 1 for at in range(problem.num_operators)] for members in sets], bool)
    held = np.stack([problem.state_bytes, problem.saved_bytes, problem.gradient_bytes], axis=1)
    parts: list[tuple[NDArray[np.intp], int, Floats, Floats, Floats]] = []
    for number in range(len(sets) - 1):
        later = number + 1 + np.flatnonzero((inside[number + 1 :] | ~inside[number]).all(axis=1))
        stage = inside[later] & ~inside[number]
        crossing = np.zeros(len(later))
        for flow in problem.flows:
            touched = stage[:, [flow.producer, *flow.consumers]]
            crossing += flow.bytes_per_sample * (touched.any(axis=1) & ~touched.all(axis=1))
        parts.append((later, number, stage @ (problem.forward_s + problem.backward_s), stage @ held, crossing))
    return _Pairs(
        first=np.concatenate([np.full(len(later), number) for later, number, *_ in parts]).astype(np.int32),
        last=np.concatenate([later for later, *_ in parts]).astype(np.int32),
        seconds=np.concatenate([seconds for _, _, seconds, _, _ in parts]),
        held=np.concatenate([held for *_, held, _ in parts]),
        crossing=np.concatenate([crossing for *_, crossing in parts]),
    )


def _under(
    problem: PipelineProblem, sets: list[int], pairs: _Pairs, micro_batch: int, bound_s: float
) -> list[StageChoice] | None:
    limits = np.array(
        [
            bound_s,
            problem.memory_bytes,
            problem.handover_bytes_per_s,
            problem.sync_bytes_per_s,
            float(problem.batch),
        ]
    )
    top = min(problem.num_devices, problem.num_operators)
    needed, chosen = _least_devices(
        pairs.first,
        pairs.last,
        pairs.seconds,
        pairs.held,
        pairs.crossing,
        len(sets),
        top,
        micro_batch.bit_length() - 1,
        limits,
        problem.batch // micro_batch,
        problem.num_devices.bit_length(),
    )
    depth = int(needed[0].argmin())
    if needed[0, depth] > problem.num_devices:
        return None
    choices, at = [], 0
    while depth:
        later = int(chosen[at, depth])
        stage = sets[later] & ~sets[at]
        devices = int(needed[at, depth] - needed[later, depth - 1])
        operators = tuple(number for number in range(problem.num_operators) if stage >> number & 1)
        choices.append(StageChoice(operators, devices))
        at, depth = later, depth - 1
    return choices


@njit(cache=True, nogil=True)
def _least_devices(
    first: Ints,
    last: Ints,
    seconds: Floats,
    held: Floats,
    crossing: Floats,
    num_sets: int,
    top: int,
    size: int,
    limits: Floats,
    num_micro_batches: int,
    num_powers: int,
) -> tuple[Ints, Ints]:
    """[downsets, stages]; the least devices for all operators outside a downset in so many stages, and the next
    downset."""
    needed = np.full((num_sets, top + 1), NONE, np.int32)
    chosen = np.zeros((num_sets, top + 1), np.int32)
    needed[num_sets - 1, 0] = 0
    levels = np.zeros(num_powers, np.int32)
    for pair in range(first.shape[0] - 1, -1, -1):
        if not levels_of(seconds[pair], held[pair], crossing[pair], size, limits, num_micro_batches, levels):
            continue
        before, behind = first[pair], last[pair]
        for stages in range(1, top + 1):
            if needed[behind, stages - 1] < NONE:
                devices = devices_at(levels, stages) + needed[behind, stages - 1]
                if devices < needed[before, stages]:
                    needed[before, stages] = devices
                    chosen[before, stages] = behind
    return needed, chosen
