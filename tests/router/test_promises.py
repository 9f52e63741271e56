"""What may be promised of first tokens: on a prediction, on an estimate, and on what others took."""

from dataclasses import replace
from typing import Any

import pytest

from headway.core.errors import ResourceExhaustedError
from headway.core.latency import LatencyModel
from headway.core.slo import Slo
from headway.core.step_work import StepWork
from headway.router.dispatcher import Shortage
from headway.router.lease import Lease, LeaseOutcome, Release
from headway.router.queued_request import QueuedRequest
from tests.router.harness import ESTIMATED, LATENCY, PREFILLED, make_plan
from tests.router.stage import REQUEST, Stage


def test_what_an_answer_takes_besides_is_predicted_and_decides_who_is_admitted() -> None:
    plain, lease = Stage(1).lease(), Stage(1, answer_overhead_s=0.2).lease()
    assert plain.ttft_s is not None
    assert plain.e2e_s is not None
    assert lease.ttft_s == pytest.approx(plain.ttft_s + 0.2)
    assert lease.e2e_s == pytest.approx(plain.e2e_s + 0.2)
    assert lease.tpot_s == plain.tpot_s
    bound = Slo(ttft_s=plain.ttft_s + 0.1)
    Stage(1).lease(slo=bound)
    with pytest.raises(ResourceExhaustedError, match="The first token would take"):
        Stage(1, answer_overhead_s=0.2).lease(slo=bound)


def come_on_time(stage: Stage, lease: Lease) -> None:
    """The first token comes when it was predicted."""
    assert lease.ttft_s is not None
    stage.dispatcher.note_first_token(lease.lease_id, ttft_s=lease.ttft_s)


def late_by(stage: Stage, late_s: float) -> None:
    """A request whose first token comes so much later than the steps predict."""
    lease = stage.lease()
    assert lease.ttft_s is not None
    ttft_s = lease.ttft_s - lease.overhead_s + late_s
    stage.dispatcher.release(Release(lease_id=lease.lease_id, outcome=LeaseOutcome.COMPLETE, ttft_s=ttft_s))


def test_what_first_tokens_took_beyond_the_forecast_is_added_to_the_next() -> None:
    stage, plain = Stage(1), Stage(1).lease()
    assert plain.ttft_s is not None
    bound = Slo(ttft_s=plain.ttft_s + 0.1)
    stage.dispatcher.release(Release(lease_id=stage.lease(slo=bound).lease_id, outcome=LeaseOutcome.CANCELLED))
    for _ in range(3):
        late_by(stage, 0.2)
    with pytest.raises(ResourceExhaustedError, match="The first token would take"):
        stage.place(slo=bound)
    stage.now_s += 300.0
    assert stage.lease(slo=bound).overhead_s < 0.01


def test_what_the_request_waited_before_its_lease_is_no_lateness() -> None:
    stage = Stage(1)
    lease = stage.dispatcher.place(QueuedRequest(request=REQUEST, arrived_s=stage.now_s - 5.0, failed_at_s=0.0))
    assert isinstance(lease, Lease)
    assert lease.ttft_s is not None
    release = Release(lease_id=lease.lease_id, outcome=LeaseOutcome.COMPLETE, ttft_s=5.0 + lease.ttft_s)
    assert stage.dispatcher.release(release) is lease
    assert stage.lease().overhead_s == pytest.approx(0.0, abs=1e-9)


def test_estimates_are_taken_with_the_error_that_they_state_until_steps_are_seen() -> None:
    def ttft_s(**changes: Any) -> float:
        stage, plan = Stage(1), make_plan("worker-0")
        latency = replace(LATENCY, relative_error=0.5, **changes)
        told = [replace(each, prediction=replace(each.prediction, latency=latency)) for each in plan.assignments]
        stage.dispatcher.fleet.apply(replace(plan, assignments=tuple(told)))
        found = [stage.lease()]
        work = StepWork(num_steps=500, num_decodes=1000, duration_s=500 * LATENCY.base_s + 1000 * LATENCY.per_decode_s)
        stage.dispatcher.supersede(replace(REQUEST, request_id=found[0].request_id))
        stage.report("worker-0", work=work)
        found.append(stage.lease())
        assert found[0].ttft_s is not None
        assert found[1].ttft_s is not None
        return found[0].ttft_s / found[1].ttft_s

    assert ttft_s(origin="estimated") > 1.4
    assert ttft_s(origin="measured") == pytest.approx(1.0)


def test_a_worker_of_which_nothing_was_seen_is_taken_to_be_as_slow_as_the_one_that_was_seen() -> None:
    """Else it would be asked for what the other holds already, as the catalogue makes it out to be quicker."""
    stage = Stage(2)
    stage.dispatcher.fleet.apply(make_plan("worker-0", "worker-1", latency=ESTIMATED))
    first = stage.lease()
    took_s = 9 * LATENCY.step_s(prefill_tokens=400, num_decodes=0, context_tokens=0)
    stage.now_s += 1.0
    stage.report(first.worker_id, work=replace(PREFILLED, duration_s=took_s))
    stage.dispatcher.release(Release(lease_id=first.lease_id, outcome=LeaseOutcome.COMPLETE, ttft_s=took_s))
    again = stage.lease(cached_blocks={first.worker_id: 20})
    assert (again.worker_id, again.num_cached_tokens) == (first.worker_id, 320)


def test_nobody_is_promised_an_objective_on_an_estimate_while_the_first_shows_how_fast_it_is() -> None:
    stage, slo = Stage(1), Slo(ttft_s=20.0)
    stage.dispatcher.fleet.apply(make_plan("worker-0", latency=ESTIMATED))
    first = stage.lease(slo=slo)
    assert stage.place(slo=slo) is Shortage.NO_ROOM
    stage.lease()  # asks for nothing
    took_s = 9 * LATENCY.step_s(prefill_tokens=400, num_decodes=0, context_tokens=0)
    stage.now_s += 1.0
    stage.report("worker-0", num_running=2, work=replace(PREFILLED, duration_s=took_s))
    stage.dispatcher.note_first_token(first.lease_id, ttft_s=took_s)
    assert stage.lease(slo=slo).ttft_s == pytest.approx(took_s, rel=0.5)


def test_a_burst_with_objectives_comes_in_waves_where_no_first_token_was_seen() -> None:
    stage, slo, waves = Stage(1), Slo(ttft_s=1000.0), list[int]()
    stage.dispatcher.fleet.apply(make_plan("worker-0", latency=ESTIMATED))
    for _ in range(3):
        wave = list[Lease]()
        while isinstance(lease := stage.place(slo=slo), Lease):
            wave.append(lease)
        assert lease is Shortage.NO_ROOM
        stage.lease()  # asks for nothing
        stage.report("worker-0", num_running=2, work=PREFILLED)
        for lease in wave:
            come_on_time(stage, lease)
        waves.append(len(wave))
    assert waves == [1, 3, 9]


def test_a_burst_to_a_place_that_was_measured_does_not_wait() -> None:
    """It is admitted as the simulator admits it."""
    stage = Stage(1)
    for _ in range(9):
        stage.lease(slo=Slo(ttft_s=1000.0))


def test_a_first_token_teaches_before_its_lease_ends_and_once() -> None:
    stage = Stage(1)
    lease = stage.lease(slo=Slo(ttft_s=1000.0))
    assert lease.ttft_s is not None
    assert stage.dispatcher.note_first_token(lease.lease_id, ttft_s=lease.ttft_s + 3.0) is lease
    assert stage.lease().overhead_s == pytest.approx(3.0)
    release = Release(lease_id=lease.lease_id, outcome=LeaseOutcome.COMPLETE, ttft_s=lease.ttft_s + 5.0)
    stage.dispatcher.release(release)
    assert stage.lease().overhead_s == pytest.approx(3.0)
    assert stage.dispatcher.note_first_token(lease.lease_id, ttft_s=9.0) is None


@pytest.mark.parametrize("latency", [ESTIMATED, LATENCY], ids=["estimated", "measured"])
def test_answers_that_came_slower_than_foretold_are_foretold_slower_where_nobody_has_measured_steps(
    latency: LatencyModel,
) -> None:
    stage = Stage(1)
    stage.dispatcher.fleet.apply(make_plan("worker-0", latency=latency))
    stage.report("worker-0", work=PREFILLED)

    def answered(*, times: float) -> float:
        """The time of a token as it was foretold, of an answer that takes so many times as long."""
        lease = stage.lease(slo=Slo(e2e_s=1000.0))
        assert lease.tpot_s is not None
        assert lease.commitment is not None
        release = Release(
            lease_id=lease.lease_id,
            outcome=LeaseOutcome.COMPLETE,
            ttft_s=lease.ttft_s,
            tpot_s=times * lease.commitment.step_s,
            num_output_tokens=64,
        )
        stage.dispatcher.release(release)
        return lease.tpot_s

    plain_s = answered(times=2.0)
    slo = Slo(tpot_s=1.5 * plain_s)
    if latency is LATENCY:
        stage.lease(slo=slo)
        return
    with pytest.raises(ResourceExhaustedError, match="A token would take"):
        stage.place(slo=slo)
    assert answered(times=1.0) == pytest.approx(2.0 * plain_s, rel=0.1)  # as foretold by now: no slower still
    assert answered(times=1.0) == pytest.approx(2.0 * plain_s, rel=0.1)
    stage.now_s += 45.0
    stage.lease(slo=slo)


def test_an_answer_is_not_slow_for_those_who_were_let_in_beside_it() -> None:
    stage = Stage(1)
    stage.dispatcher.fleet.apply(make_plan("worker-0", latency=ESTIMATED))
    stage.report("worker-0", work=PREFILLED)
    first = stage.lease(slo=Slo(e2e_s=1000.0))
    for _ in range(8):
        stage.lease()
    assert first.commitment is not None
    assert first.tpot_s is not None
    took_s = first.commitment.step_s
    assert took_s > 1.5 * first.tpot_s
    release = Release(
        lease_id=first.lease_id, outcome=LeaseOutcome.COMPLETE, ttft_s=1.0, tpot_s=took_s, num_output_tokens=64
    )
    before = stage.lease().tpot_s
    stage.dispatcher.release(release)
    assert stage.lease().tpot_s == pytest.approx(before, rel=0.01)
