"""Orders of passes beside all orders there are, and the appendix's table beside simulation."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from headway.planner.graphpipe.in_flight import simulated_in_flight, table_in_flight
from headway.planner.graphpipe.schedule import (
    Passes,
    ScheduledStage,
    first_end,
    greedy_passes,
    iteration_s,
    kfkb,
)

SIZES = (1, 2, 4)


def all_passes(forward: int, backward: int) -> Iterator[Passes]:
    """All orders in which no backward pass comes before its forward one."""
    if forward == backward == 0:
        yield ()
        return
    if forward:
        yield from ((True, *rest) for rest in all_passes(forward - 1, backward))
    if backward > forward:
        yield from ((False, *rest) for rest in all_passes(forward, backward - 1))


def stage(micro_batch: int, ratio: float, passes: Passes = (), successors: tuple[int, ...] = ()) -> ScheduledStage:
    return ScheduledStage(
        micro_batch=micro_batch,
        forward_s=float(micro_batch),
        backward_s=ratio * micro_batch,
        passes=passes,
        successors=successors,
    )


@pytest.mark.parametrize(("own", "behind", "k", "next_k"), list(product(SIZES, repeat=4)))
def test_the_table_is_what_simulation_finds_for_equal_passes(own: int, behind: int, k: int, next_k: int) -> None:
    batch = 32
    last = stage(behind, 1.0, kfkb(batch // behind, warm_up=next_k, k=next_k))
    passes = simulated_in_flight(stage(own, 1.0, successors=(0,)), [last], batch=batch, k=k)
    expected = table_in_flight(k, own, next_k, behind, last.in_flight)
    assert replace(stage(own, 1.0), passes=passes).in_flight == min(expected, batch)


def test_the_table_is_too_small_where_backward_takes_longer() -> None:
    last = stage(1, 2.0, kfkb(32, warm_up=4, k=4))
    passes = simulated_in_flight(stage(1, 2.0, successors=(0,)), [last], batch=32, k=4)
    assert table_in_flight(4, 1, 4, 1, last.in_flight) == 6
    assert replace(last, passes=passes).in_flight == 7


@pytest.mark.parametrize("seed", range(120))
def test_greedy_passes_end_first_and_hold_least_of_all_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, ratio = 4, float(rng.choice([1.0, 2.0, 3.0]))
    later = []
    for number in range(2):
        size = int(rng.choice(SIZES))
        after = (1,) if number == 0 and rng.random() < 0.5 else ()
        later.append(stage(size, ratio, kfkb(batch // size, warm_up=int(rng.integers(1, 5))), after))
    own = stage(int(rng.choice((1, 2))), ratio, successors=(0, 1))
    number = batch // own.micro_batch
    greedy = greedy_passes(own, later, batch=batch)
    tried = [
        (first_end(own, passes, later), replace(own, passes=passes).in_flight) for passes in all_passes(number, number)
    ]
    assert (first_end(own, greedy, later), replace(own, passes=greedy).in_flight) == min(tried)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_kfkb_runs_every_pass_once(k: int) -> None:
    for number, warm_up in product(range(1, 7), range(1, 8)):
        passes = kfkb(number, warm_up=warm_up, k=k)
        assert sum(passes) == number == len(passes) - sum(passes)
        held = np.cumsum(np.where(passes, 1, -1))
        assert held.min() == 0


def test_a_chain_of_equal_stages_takes_what_equation_3_2_says() -> None:
    number, depth = 6, 3
    stages = [
        stage(1, 2.0, kfkb(number, warm_up=depth - at), (at + 1,) if at + 1 < depth else ()) for at in range(depth)
    ]
    assert iteration_s(stages) == 3 * depth + 3 * (number - 1)


def test_too_few_in_flight_wait_for_ever() -> None:
    """Four samples are one micro-batch of the stage behind, and only two are ever on their way."""
    first = stage(1, 1.0, kfkb(4, warm_up=2), (1,))
    assert iteration_s([first, stage(4, 1.0, kfkb(1, warm_up=1))]) == np.inf
