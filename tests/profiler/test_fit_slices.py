"""TeraPipe's context term: against laws that we made up, and against what the public code finds on its tables."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.slice_latency import ContextFit, SliceLatency
from headway.core.slice_profile import SliceProfile, SliceTable
from headway.profiler.fit_slices import fit_context
from headway.profiler.formats import terapipe
from headway.profiler.formats.document import read_document

DATA = Path(__file__).resolve().parents[1] / "reference"
BATCHES, SLICES, CONTEXTS = (1, 2, 4), range(64, 641, 64), (0, *range(64, 641, 64))


def table_of(law: Any) -> SliceTable:
    """Each pass takes what `law(batch, slice, context)` says."""
    shapes = list(product(BATCHES, SLICES, CONTEXTS))
    batch, slices, context = zip(*shapes, strict=True)
    seconds = tuple(law(*shape) for shape in shapes)
    return SliceTable(
        batch_size=batch,
        slice_tokens=slices,
        context_tokens=context,
        forward_s=seconds,
        backward_s=tuple(2 * value for value in seconds),
        update_s=(0.0,) * len(shapes),
    )


def fit_of(table: SliceTable, **settings_: Any) -> ContextFit:
    fit = fit_context(table, table.forward_s, **settings_)
    assert fit is not None
    return fit


COEFFICIENT = st.floats(1e-3, 10.0)


@settings(deadline=None, max_examples=50)
@given(COEFFICIENT, COEFFICIENT, COEFFICIENT, COEFFICIENT, st.integers(0, 2**32 - 1))
def test_a_bilinear_law_is_found_whatever_part_is_fitted(a0: float, a1: float, a2: float, a3: float, seed: int) -> None:
    def law(batch: int, slices: int, context: int) -> float:
        alone_s = 5e-3 + 1e-5 * batch * slices + 1e-9 * batch * slices**2  # no part of the fit: any law will do
        added = a0 * 1e-4 + batch * (a1 * 1e-7 * slices + a2 * 1e-7 * context + a3 * 1e-9 * slices * context)
        return alone_s + (added if context else 0.0)

    table = table_of(law)
    fit = fit_of(table, seed=seed)
    assert (fit.a0, fit.a1, fit.a2, fit.a3) == pytest.approx((a0 * 1e-4, a1 * 1e-7, a2 * 1e-7, a3 * 1e-9), rel=1e-4)
    assert fit.max_relative_error < 1e-6
    model = SliceLatency(table.without_context(table.forward_s), fit)
    assert model.seconds(128, 192, batch_size=2) == pytest.approx(law(2, 128, 192), rel=1e-6)
    assert model.seconds(128, 0, batch_size=2) == law(2, 128, 0)


def test_the_error_is_that_of_slices_which_the_fit_has_not_seen() -> None:
    generator = np.random.default_rng(7)
    table = table_of(lambda b, i, j: (1e-3 + 1e-6 * b * i + 1e-9 * b * i * j) * float(generator.lognormal(0.0, 0.05)))
    fit = fit_of(table)
    num_rows = len(BATCHES) * len(SLICES) * (len(CONTEXTS) - 1)
    assert fit.num_fitted + fit.num_held_out == num_rows
    assert 0.005 < fit.relative_error < 0.2
    assert fit.relative_error < fit.max_relative_error
    assert fit == fit_of(table), "the draw is seeded"


def test_slices_between_measured_ones_are_interpolated() -> None:
    table = table_of(lambda b, i, j: 1e-3 * i)
    model = SliceLatency(table.without_context(table.forward_s), fit_of(table))
    assert model.seconds(96, 0) == pytest.approx(0.096)
    with pytest.raises(KeyError):
        model.seconds(96, 0, batch_size=3)


def test_a_table_that_does_not_tell_the_terms_apart_has_no_fit() -> None:
    table = table_of(lambda b, i, j: 1e-3)
    alike = [row for row, shape in enumerate(table.shapes()) if shape[1] == 64 and shape[0] == 1]
    columns = {
        name: tuple(getattr(table, name)[row] for row in alike)
        for name in ("batch_size", "slice_tokens", "context_tokens", "forward_s", "backward_s", "update_s")
    }
    poor = SliceTable(**columns)
    assert fit_context(poor, poor.forward_s) is None


@pytest.fixture(scope="module")
def published() -> list[SliceProfile]:
    path = DATA / "terapipe_latency.json.gz"
    return terapipe.read(read_document(path.read_bytes()), hardware="V100-16", created_at_s=0.0)


def test_the_tables_of_terapipe_are_met_within_two_percent(published: list[SliceProfile]) -> None:
    """Every slice that was held out, not their median only; the paper reports the same bound (section 2.3.3)."""
    assert len(published) == 3
    for profile in published:
        for fit in (profile.forward, profile.backward):
            assert fit is not None
            assert fit.max_relative_error < 0.02
            assert fit.overhead_error < 0.02


def test_the_public_codes_schemes_take_the_latency_that_it_states(published: list[SliceProfile]) -> None:
    golden = json.loads((DATA / "terapipe_golden.json").read_text())
    by_setting = {profile.setting: profile for profile in published}
    for name, found in golden.items():
        assert _iteration_s(by_setting[name], found["scheme"]) == pytest.approx(found["latency_s"], rel=1e-3)


def _iteration_s(profile: SliceProfile, scheme: list[Any]) -> float:
    """The objective of TeraPipe: the sum of all stages, K - 1 times the slowest, and the updates."""
    assert profile.forward is not None
    assert profile.backward is not None
    table = profile.table
    forward = SliceLatency(table.without_context(table.forward_s), profile.forward)
    backward = SliceLatency(table.without_context(table.backward_s), profile.backward)
    stages = []
    for batch, slices in scheme:
        context = 0
        for tokens in slices:
            layer_s = sum(model.seconds(tokens, context, batch_size=batch) for model in (forward, backward))
            stages.append(profile.layers_per_stage * layer_s + 2 * profile.communication.at(batch * tokens))
            context += tokens
    update_s = profile.layers_per_stage * float(np.mean(table.update_s))
    return sum(stages) + (profile.pp - 1) * max(stages) + update_s
