"""What live steps take beyond the plan, learned from what workers report."""

import random
from dataclasses import replace

import pytest

from headway.core.latency import LatencyModel
from headway.core.step_work import StepWork
from headway.router.drift import StepDrift

PLANNED = LatencyModel(
    base_s=0.01, per_prefill_token_s=0.001, per_prefill_pair_s=1e-6, per_decode_s=0.002, per_context_token_s=1e-6
)


class Worker:
    """Steps of random kinds, which take what a latency model says, give or take some noise."""

    def __init__(self, live: LatencyModel, *, noise: float = 0.0, seed: int = 0) -> None:
        self.live = live
        self.noise = noise
        self.work = StepWork()
        self.idle_s = 0.0
        self._rng = random.Random(seed)

    @property
    def now_s(self) -> float:
        return self.work.duration_s + self.idle_s

    def step(self, *, max_prefill: int = 256) -> StepWork:
        num_decodes = self._rng.randint(1, 8)
        context = num_decodes * self._rng.randint(50, 500)
        prefill = self._rng.choice((0, 0, 0, max_prefill))
        duration_s = self.live.step_s(prefill_tokens=prefill, num_decodes=num_decodes, context_tokens=context)
        self.work += StepWork(
            num_steps=1,
            num_prefill_tokens=prefill,
            num_prefill_pairs=prefill * prefill / 2,
            num_decodes=num_decodes,
            num_context_tokens=context,
            duration_s=duration_s * self._rng.uniform(1 - self.noise, 1 + self.noise),
        )
        return self.work


def test_steps_as_planned_change_nothing() -> None:
    drift, worker = StepDrift(PLANNED), Worker(PLANNED)
    for _ in range(1000):
        drift.observe(worker.step(), now_s=worker.now_s)
    assert drift.fitted == PLANNED


def test_a_report_without_new_steps_changes_nothing() -> None:
    drift, worker = StepDrift(PLANNED), Worker(replace(PLANNED, base_s=0.02))
    for _ in range(10):
        drift.observe(worker.step(), now_s=worker.now_s)
    learned = drift.fitted
    drift.observe(worker.work, now_s=worker.now_s)
    assert drift.fitted == learned != PLANNED


@pytest.mark.parametrize(
    "live",
    [
        replace(PLANNED, base_s=0.016),
        replace(PLANNED, per_decode_s=0.004, per_context_token_s=2e-6),
        replace(PLANNED, per_prefill_token_s=0.0013, per_prefill_pair_s=1.3e-6),
        replace(PLANNED, base_s=0.005, per_decode_s=0.003, per_context_token_s=1.5e-6),
    ],
    ids=["steps", "decodes", "prefill", "quicker steps of slower decodes"],
)
def test_it_learns_which_part_differs(live: LatencyModel) -> None:
    drift, worker = StepDrift(PLANNED), Worker(live, noise=0.05)
    for _ in range(3000):
        drift.observe(worker.step(), now_s=worker.now_s)
    learned = drift.fitted
    assert learned.base_s == pytest.approx(live.base_s, rel=0.2)
    assert learned.per_decode_s == pytest.approx(live.per_decode_s, rel=0.1)
    assert learned.per_prefill_token_s == pytest.approx(live.per_prefill_token_s, rel=0.1)
    for num_decodes in (1, 8):
        expected_s = live.decode_s(num_decodes=num_decodes, context_tokens=200 * num_decodes)
        assert learned.decode_s(num_decodes=num_decodes, context_tokens=200 * num_decodes) == pytest.approx(
            expected_s, rel=0.1
        )


def test_reports_may_skip_steps() -> None:
    """Parts are told apart less well then, but the time of usual steps is known."""
    live = replace(PLANNED, base_s=0.02)
    drift, worker = StepDrift(PLANNED), Worker(live)
    for number in range(3000):
        work = worker.step()
        if number % 7 == 0:
            drift.observe(work, now_s=worker.now_s)
    for prefill_tokens in (0, 256):
        usual = {"prefill_tokens": prefill_tokens, "num_decodes": 4, "context_tokens": 1000}
        assert drift.fitted.step_s(**usual) == pytest.approx(live.step_s(**usual), rel=0.1)
        assert PLANNED.step_s(**usual) < 0.97 * live.step_s(**usual)


def test_it_forgets() -> None:
    drift, worker = StepDrift(PLANNED), Worker(replace(PLANNED, base_s=0.03))
    for _ in range(3000):
        drift.observe(worker.step(), now_s=worker.now_s)
    worker.live = PLANNED
    for _ in range(6000):
        drift.observe(worker.step(), now_s=worker.now_s)
    assert drift.fitted.base_s == pytest.approx(PLANNED.base_s, rel=0.1)


def test_a_few_steps_hardly_count() -> None:
    drift, worker = StepDrift(PLANNED), Worker(replace(PLANNED, base_s=0.02))
    drift.observe(worker.step(max_prefill=0), now_s=worker.now_s)
    assert drift.fitted.base_s < 1.1 * PLANNED.base_s


def test_a_hold_up_says_little() -> None:
    drift, worker = StepDrift(PLANNED), Worker(PLANNED)
    for _ in range(500):
        drift.observe(worker.step(), now_s=worker.now_s)
    worker.work = replace(worker.work, duration_s=worker.work.duration_s + 60.0)
    drift.observe(worker.step(), now_s=worker.now_s)
    for _ in range(500):
        drift.observe(worker.step(), now_s=worker.now_s)
    assert drift.fitted.base_s < 1.1 * PLANNED.base_s


def test_an_estimate_that_is_wrong_by_any_factor_is_corrected_within_some_steps() -> None:
    """A catalogue knows nothing of a small network on a busy machine: steps may take fifty times as long."""
    live = PLANNED.part(50.0)
    drift, worker = StepDrift(replace(PLANNED, origin="estimated", relative_error=0.5)), Worker(live)
    for _ in range(16):
        drift.observe(worker.step(), now_s=worker.now_s)
    usual = {"prefill_tokens": 256, "num_decodes": 4, "context_tokens": 1000}
    assert drift.fitted.step_s(**usual) == pytest.approx(live.step_s(**usual), rel=0.15)


def test_one_hold_up_of_an_estimate_is_not_believed_in_full() -> None:
    drift, worker = StepDrift(replace(PLANNED, origin="estimated", relative_error=0.5)), Worker(PLANNED.part(1000.0))
    drift.observe(worker.step(), now_s=worker.now_s)
    usual = {"prefill_tokens": 256, "num_decodes": 4, "context_tokens": 1000}
    assert drift.fitted.step_s(**usual) <= 10.0 * PLANNED.step_s(**usual)


def test_a_model_that_was_loaded_anew_counts_from_nothing() -> None:
    live = replace(PLANNED, base_s=0.02)
    drift, worker = StepDrift(PLANNED), Worker(live)
    for _ in range(1000):
        drift.observe(worker.step(), now_s=worker.now_s)
    learned = drift.fitted.base_s
    worker.idle_s, worker.work = worker.now_s, StepWork()
    for _ in range(100):
        drift.observe(worker.step(), now_s=worker.now_s)
    assert drift.fitted.base_s == pytest.approx(learned, rel=0.02)


def test_a_slow_spell_is_forgotten_while_nothing_is_done_and_at_once_where_steps_are_quick_again() -> None:
    """Who refuses everybody since steps were slow learns nothing new."""
    drift, worker = StepDrift(PLANNED), Worker(PLANNED.part(3.0))
    for _ in range(1000):
        drift.observe(worker.step(), now_s=worker.now_s)
    usual = {"prefill_tokens": 0, "num_decodes": 4, "context_tokens": 1000}

    def times_as_long(idle_s: float) -> float:
        return drift.latency(now_s=worker.now_s + idle_s).step_s(**usual) / PLANNED.step_s(**usual)

    assert times_as_long(0.5) == pytest.approx(3.0, rel=0.1)
    believed = [times_as_long(idle_s) for idle_s in (60.0, 480.0, 600.0, 900.0, 1800.0)]
    assert believed == sorted(believed, reverse=True)
    assert believed[0] > 2.8
    assert believed[-1] == 1.0
    assert drift.fitted.step_s(**usual) == pytest.approx(3.0 * PLANNED.step_s(**usual), rel=0.1)
    worker.idle_s, worker.live = 600.0, PLANNED
    for _ in range(50):
        drift.observe(worker.step(), now_s=worker.now_s)
    assert times_as_long(0.0) < 1.5


def test_what_a_few_steps_showed_of_an_estimate_is_no_proof_for_long() -> None:
    drift, worker = StepDrift(replace(PLANNED, origin="estimated", relative_error=0.5)), Worker(PLANNED)
    assert not drift.is_proven(now_s=0.0)
    drift.observe(worker.step(), now_s=worker.now_s)
    assert drift.is_proven(now_s=worker.now_s)
    assert not drift.is_proven(now_s=worker.now_s + 3600.0)
    assert StepDrift(PLANNED).is_proven(now_s=0.0)
