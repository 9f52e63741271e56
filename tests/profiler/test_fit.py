"""The fit finds the coefficients that measurements were made with."""

import random

import pytest

from headway.core.latency import LatencyModel
from headway.core.profile import StepMeasurement
from headway.profiler.fit import fit_latency
from headway.profiler.grid import Point, WorkerLimits, choose_grid

GRID = choose_grid(
    WorkerLimits(max_num_seqs=128, max_num_batched_tokens=512, max_model_len=2048, num_blocks=8192, block_size=16)
)
NAMES = ("base_s", "per_prefill_token_s", "per_prefill_pair_s", "per_decode_s", "per_context_token_s")


def measure(
    law: LatencyModel, points: tuple[Point, ...], *, noise: float = 0.0, seed: int = 0
) -> list[StepMeasurement]:
    generator = random.Random(seed)
    return [
        StepMeasurement(
            prefill_tokens=point.prefill_tokens,
            num_decodes=point.num_decodes,
            context_tokens=point.context_tokens,
            step_s=generator.uniform(1 - noise, 1 + noise)
            * law.step_s(
                prefill_tokens=point.prefill_tokens,
                prefill_context=point.context_tokens,
                num_decodes=point.num_decodes,
                context_tokens=point.num_decodes * point.context_tokens,
            ),
        )
        for point in points
    ]


def test_exact_measurements_give_back_the_law(law: LatencyModel) -> None:
    fitted = fit_latency(measure(law, GRID.fitted), held_out=measure(law, GRID.held_out))
    for name in NAMES:
        assert getattr(fitted, name) == pytest.approx(getattr(law, name), rel=1e-6)
    assert fitted.relative_error < 1e-6
    assert fitted.origin == "measured"


@pytest.mark.parametrize("seed", range(10))
def test_noise_of_five_percent_costs_about_five_percent(law: LatencyModel, seed: int) -> None:
    noisy = fit_latency(
        measure(law, GRID.fitted, noise=0.05, seed=seed),
        held_out=measure(law, GRID.held_out, noise=0.05, seed=seed + 100),
    )
    for name in ("base_s", "per_prefill_token_s", "per_decode_s"):
        assert getattr(noisy, name) == pytest.approx(getattr(law, name), rel=0.25)
    assert noisy.relative_error < 0.1
    for point in GRID.held_out:
        wanted = measure(law, (point,))[0].step_s
        assert measure(noisy, (point,))[0].step_s == pytest.approx(wanted, rel=0.1)


def test_coefficients_are_never_negative(law: LatencyModel) -> None:
    for seed in range(20):
        noisy = fit_latency(measure(law, GRID.fitted, noise=0.8, seed=seed), held_out=[])
        assert all(getattr(noisy, name) >= 0 for name in NAMES)


def test_a_cost_that_the_hardware_does_not_have_is_fitted_as_zero() -> None:
    law = LatencyModel(
        base_s=1e-3, per_prefill_token_s=1e-4, per_prefill_pair_s=0.0, per_decode_s=1e-4, per_context_token_s=0.0
    )
    fitted = fit_latency(measure(law, GRID.fitted), held_out=measure(law, GRID.held_out))
    assert fitted.per_prefill_pair_s == pytest.approx(0.0, abs=1e-12)
    assert fitted.per_context_token_s == pytest.approx(0.0, abs=1e-12)


def test_without_held_out_points_the_error_is_that_of_the_fit(law: LatencyModel) -> None:
    assert fit_latency(measure(law, GRID.fitted), held_out=[]).relative_error < 1e-6
