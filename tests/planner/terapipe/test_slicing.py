"""The slicing beside all schemes there are of a few steps."""

from collections.abc import Iterator
from itertools import combinations_with_replacement

import numpy as np
import pytest

from headway.core.errors import InvalidArgumentError
from headway.core.slice_latency import ContextFit, SliceLatency
from headway.planner.terapipe.scheme import BatchSlice, Scheme, SliceTimes, uniform
from headway.planner.terapipe.slicing import slice_batch


def compositions(total: int) -> Iterator[tuple[int, ...]]:
    if total == 0:
        yield ()
    for first in range(1, total + 1):
        yield from ((first, *rest) for rest in compositions(total - first))


def all_schemes(times: SliceTimes, batch: int) -> Iterator[Scheme]:
    """Batch slices in any order take the same."""
    parts = [
        BatchSlice(number, tuple(size * times.step for size in sizes))
        for number in range(1, times.max_sequences + 1)
        for sizes in compositions(times.seconds.shape[1])
    ]
    for count in range(1, batch + 1):
        for scheme in combinations_with_replacement(parts, count):
            if sum(part.num_sequences for part in scheme) == batch:
                yield scheme


def random_times(rng: np.random.Generator, *, num_steps: int, num_sequences: int) -> SliceTimes:
    """Any times at all; some slices are not possible."""
    seconds = rng.integers(1, 30, (num_sequences, num_steps, num_steps)).astype(float)
    seconds[rng.random(seconds.shape) < 0.1] = np.inf
    return SliceTimes(seconds=seconds, step=8, num_stages=int(rng.integers(1, 9)), once_s=float(rng.integers(0, 5)))


@pytest.mark.parametrize("seed", range(200))
def test_no_scheme_is_shorter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = random_times(rng, num_steps=int(rng.integers(1, 5)), num_sequences=int(rng.integers(1, 3)))
    batch = int(rng.integers(1, 4))
    best = min((times.iteration_s(scheme) for scheme in all_schemes(times, batch)), default=np.inf)
    found = slice_batch(times, batch)
    if found is None:
        assert best == np.inf
        return
    assert found.iteration_s == best == times.iteration_s(found.scheme)
    assert sum(part.num_sequences for part in found.scheme) == batch


def test_later_slices_are_shorter_as_they_attend_to_more() -> None:
    """Section 2.3.2: with a long sequence and little overhead the first slice is the longest."""
    sizes, contexts = np.arange(1, 65)[:, None], np.arange(64)[None, :]
    seconds = 1e-4 + 1e-5 * sizes + 2e-7 * sizes * contexts + 1e-7 * sizes**2
    found = slice_batch(SliceTimes(seconds=seconds[None], step=8, num_stages=24), 1)
    assert found is not None
    assert found.scheme[0].tokens[0] == max(found.scheme[0].tokens) > found.scheme[0].tokens[-1]


def test_uniform_slices_are_a_whole_sequence() -> None:
    assert uniform(2, 64, num_slices=4) == (BatchSlice(1, (16, 16, 16, 16)),) * 2


def test_slices_that_are_no_sequence_are_refused() -> None:
    times = SliceTimes(seconds=np.ones((1, 4, 4)), step=8, num_stages=2)
    for tokens in ((8, 8), (12, 20)):
        with pytest.raises(InvalidArgumentError, match="not a sequence of 32"):
            times.iteration_s((BatchSlice(1, tokens),))
    with pytest.raises(InvalidArgumentError, match="batch is 0"):
        slice_batch(times, 0)


def test_a_table_of_latencies_is_what_each_slice_takes() -> None:
    fit = ContextFit(
        a0=0.1,
        a1=0.02,
        a2=0.003,
        a3=0.0004,
        relative_error=0,
        max_relative_error=0,
        overhead_error=0,
        num_fitted=4,
        num_held_out=1,
    )
    latency = SliceLatency({2: {8: 1.0, 32: 3.0}}, fit)
    sizes, contexts = np.array([8, 16, 40]), np.array([0, 8, 24])
    table = latency.table(sizes, contexts, batch_size=2)
    expected = [[latency.seconds(i, j, batch_size=2) for j in contexts.tolist()] for i in sizes.tolist()]
    np.testing.assert_allclose(table, expected, rtol=1e-12)
