"""Iterations of sliced micro-batches beside a simulation that follows each slice, and what is in flight meanwhile."""

from collections.abc import Sequence

import networkx as nx
import numpy as np
import pytest

from headway.core.plan.training import SliceSeconds
from headway.planner.terapipe.sliced_pipeline import in_flight, pipeline_s, simulated_s


def stages_of(rng: np.random.Generator, num_stages: int, num_slices: int) -> list[list[SliceSeconds]]:
    """Stages that take alike, and slices too, within a tenth."""
    return [
        [
            SliceSeconds(forward_s=f, backward_s=2 * f, handover_s=h)
            for f, h in zip(rng.uniform(0.9, 1, num_slices), rng.uniform(0, 0.1, num_slices), strict=True)
        ]
        for _ in range(num_stages)
    ]


def order_of(after: int, num_slices: int, num_micro_batches: int) -> list[tuple[str, int, int]]:
    """1F1B of one stage: forward or backward, micro-batch, slice."""
    forward = [("F", batch, piece) for batch in range(num_micro_batches) for piece in range(num_slices)]
    backward = [("B", batch, piece) for batch in range(num_micro_batches) for piece in reversed(range(num_slices))]
    ahead = min(len(forward), after + num_slices)
    order = forward[:ahead]
    for number, task in enumerate(backward):
        order += [task, *forward[ahead + number : ahead + number + 1]]
    return order


def longest_path_s(stages: Sequence[Sequence[SliceSeconds]], num_micro_batches: int) -> float:
    """The makespan as the longest path through all tasks: what the order of stages and the data ask for."""
    graph = nx.DiGraph()
    count, num_slices = len(stages), len(stages[0])
    for stage, slices in enumerate(stages):
        order = order_of(count - 1 - stage, num_slices, num_micro_batches)
        for before, after in zip([("start",), *((stage, *t) for t in order)], order, strict=False):
            way, _, piece = after
            seconds = slices[piece].forward_s if way == "F" else slices[piece].backward_s
            graph.add_edge(before, (stage, *after), weight=seconds)
            if stage and way == "F":
                sent = stages[stage - 1][piece].handover_s / 2
                graph.add_edge((stage - 1, *after), (stage, *after), weight=seconds + sent)
            if stage < count - 1 and way == "B":
                graph.add_edge((stage + 1, *after), (stage, *after), weight=seconds + slices[piece].handover_s / 2)
            if stage == count - 1 and way == "B":
                graph.add_edge((stage, "F", *after[1:]), (stage, *after), weight=seconds)
    return float(nx.dag_longest_path_length(graph))


@pytest.mark.parametrize("seed", range(30))
def test_the_simulation_is_the_longest_path(seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_stages, num_slices, batches = (int(rng.integers(1, most)) for most in (6, 6, 6))
    stages = stages_of(rng, num_stages, num_slices)
    assert simulated_s(stages, batches) == pytest.approx(longest_path_s(stages, batches), rel=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_equation_3_2_holds_for_whole_micro_batches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stages = stages_of(rng, int(rng.integers(1, 6)), 1)
    seconds = [each[0].latency_s for each in stages]
    batches = int(rng.integers(1, 9))
    assert pipeline_s(stages, batches) >= sum(seconds) + (batches - 1) * max(seconds) - 1e-9
    alike = [stages[0]] * len(stages)
    whole = alike[0][0].latency_s
    assert pipeline_s(alike, batches) == pytest.approx((len(alike) + batches - 1) * whole)


def test_equal_slices_fill_the_pipeline_as_many_times_faster() -> None:
    one = SliceSeconds(forward_s=1.0, backward_s=2.0)
    assert pipeline_s([[one] * 4] * 3, 2) == pytest.approx(3.0 * (2 * 4 + 3 - 1))


@pytest.mark.parametrize("seed", range(40))
def test_in_flight_is_what_the_schedule_keeps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    after, num_slices, batches = int(rng.integers(0, 9)), int(rng.integers(1, 6)), int(rng.integers(1, 9))
    tokens = [int(size) for size in rng.integers(1, 100, num_slices)]
    held = most = 0
    for way, _, piece in order_of(after, num_slices, batches):
        held += tokens[piece] if way == "F" else -tokens[piece]
        most = max(most, held)
    assert in_flight(after, tokens, num_micro_batches=batches) == -(-most // sum(tokens))
    if num_slices == 1:
        assert in_flight(after, tokens, num_micro_batches=batches) == min(batches, after + 1)
