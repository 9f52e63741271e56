"""Alpa's piecewise-linear model of communication: against numpy's interpolation and against brute force."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.piecewise import PiecewiseLinear
from headway.profiler.fit_piecewise import _rise, fit_piecewise

SECONDS = st.floats(1e-6, 10.0)
SAMPLES = st.lists(st.tuples(st.integers(0, 1 << 30), SECONDS), min_size=1, max_size=20)


@settings(deadline=None)
@given(samples=SAMPLES, size=st.floats(0, 2**32))
def test_it_never_falls_and_interpolates_as_numpy_does(samples: list[tuple[int, float]], size: float) -> None:
    model = fit_piecewise(samples)
    assert list(model.sizes) == sorted(set(model.sizes))
    assert list(model.seconds) == sorted(model.seconds)
    assert model.at(size) <= model.at(size * 1.5) * (1 + 1e-12)
    if size <= model.sizes[-1]:
        assert model.at(size) == pytest.approx(float(np.interp(size, model.sizes, model.seconds)))


@given(st.lists(SECONDS, min_size=1, max_size=7))
def test_the_rising_sequence_is_the_nearest_one(values: list[float]) -> None:
    """The best is a mean over blocks of neighbours: all ways to cut are tried."""
    best = min(
        float(np.sum((np.array(candidate) - values) ** 2))
        for cuts in range(len(values))
        for at in combinations(range(1, len(values)), cuts)
        for candidate in [np.concatenate([np.full(len(b), b.mean()) for b in np.split(np.array(values), list(at))])]
        if (np.diff(candidate) >= -1e-12).all()
    )
    assert float(np.sum((np.array(_rise(values)) - values) ** 2)) == pytest.approx(best, abs=1e-9)


def test_a_law_of_two_pieces_needs_three_points() -> None:
    samples = [
        (float(size), 1e-5 + 1e-9 * min(size, 4096) + 2e-10 * max(0, size - 4096)) for size in range(0, 16385, 512)
    ]
    model = fit_piecewise(samples, max_error=1e-6)
    assert model.sizes == (0.0, 4096.0, 16384.0)
    assert model.relative_error < 0.01
    assert model.at(32768) == pytest.approx(1e-5 + 1e-9 * 4096 + 2e-10 * (32768 - 4096)), "the last piece goes on"


def test_noise_of_one_size_counts_as_its_median_and_errors_are_bounded() -> None:
    generator = np.random.default_rng(3)
    true = PiecewiseLinear(sizes=(1.0, 1e4, 1e7), seconds=(2e-5, 4e-5, 1e-3))
    sizes = np.geomspace(1, 1e7, 24)
    samples = [(float(size), true.at(size) * float(generator.lognormal(0, 0.02))) for size in sizes for _ in range(9)]
    model = fit_piecewise(samples, max_error=0.05)
    assert all(model.at(size) == pytest.approx(true.at(size), rel=0.1) for size in sizes)
    assert len(model.sizes) < len(sizes)


@pytest.mark.parametrize("samples", [[], [(1.0, -1.0)], [(-1.0, 1.0)], [(1.0, 0.0)], [(1.0, float("nan"))]])
def test_what_cannot_be_timed_is_refused(samples: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="positive"):
        fit_piecewise(samples)
