"""Whole decisions, with a clock of their own."""

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headway.core.errors import ResourceExhaustedError
from headway.core.slo import Slo
from headway.router.dispatcher import Shortage
from headway.router.lease import Lease, LeaseOutcome, Release
from headway.router.queued_request import QueuedRequest
from tests.router.harness import LATENCY, make_plan
from tests.router.scripted import IDLE
from tests.router.stage import REQUEST, Stage


def test_a_burst_between_two_reports_is_spread_evenly() -> None:
    stage = Stage(4)
    counts = Counter(stage.lease().worker_id for _ in range(40))
    assert counts == dict.fromkeys(stage.worker_ids, 10)


def test_a_model_that_does_not_generate_waits_for_prompts_only() -> None:
    """It has no blocks, and as many requests ahead as there are cost their tokens, not the time of an output."""
    stage = Stage(2)
    for worker_id, num_tokens in zip(stage.worker_ids, (30_000, 300), strict=True):
        stage.report(
            worker_id,
            num_blocks=0,
            num_free_blocks=0,
            num_running=100,
            num_waiting=400,
            num_pending_prefill_tokens=num_tokens,
        )
    lease = stage.lease(max_output_tokens=0, num_prompt_tokens=100)
    assert lease.worker_id == "worker-1"
    assert lease.ttft_s is not None
    assert 0.3 < lease.ttft_s < 2.0


def test_a_burst_goes_round_a_worker_that_is_busy() -> None:
    stage = Stage(3)
    stage.report("worker-1", num_running=20, num_context_tokens=8000, num_pending_prefill_tokens=4000)
    counts = Counter(stage.lease().worker_id for _ in range(10))
    assert counts == {"worker-0": 5, "worker-2": 5}


def test_a_tenant_has_its_share_of_a_full_group_and_takes_no_more() -> None:
    """Issue 30, row 10: 32 requests of 32 samples of one tenant held every place of the group."""
    stage = Stage(1, max_group_sequences=512)
    held = [stage.lease(tenant="a", num_sequences=32) for _ in range(16)]
    assert stage.place(tenant="a") is Shortage.NO_ROOM
    others = []
    while isinstance(lease := stage.place(tenant="b", num_sequences=32), Lease):
        others.append(lease)
    assert len(others) == 8
    for each in held[:9]:
        stage.dispatcher.release(Release(lease_id=each.lease_id, outcome=LeaseOutcome.COMPLETE))
    assert isinstance(stage.place(tenant="b", num_sequences=32), Lease), "what nobody else wants is for all"
    stage.dispatcher.lease_table.check_integrity()


def test_leases_that_a_report_counts_are_not_counted_twice() -> None:
    stage = Stage(2)
    for _ in range(8):
        stage.lease()
    stage.now_s += 1.0
    stage.report("worker-0", num_running=4, num_context_tokens=1600)
    stage.report("worker-1", num_running=4, num_context_tokens=1600)
    assert stage.lease().reason.split(": ")[1].startswith("4 sequences there")


def test_leases_that_a_late_report_does_not_count_yet_still_count() -> None:
    stage = Stage(1)
    for _ in range(8):
        stage.lease()
    stage.now_s += 1.0
    stage.report("worker-0", num_running=3)
    assert stage.lease().reason.split(": ")[1].startswith("8 sequences there")


def test_the_holder_of_a_prefix_is_chosen_and_the_cached_tokens_told() -> None:
    stage = Stage(3)
    lease = stage.lease(cached_blocks={"worker-2": 20})
    assert (lease.worker_id, lease.num_cached_tokens, lease.num_prefill_tokens) == ("worker-2", 320, 80)


def test_more_cached_blocks_than_the_prompt_has_leave_one_token_to_compute() -> None:
    assert Stage(1).lease(cached_blocks={"worker-0": 99}).num_cached_tokens == 399


def test_predictions_are_absent_without_a_latency_model() -> None:
    stage = Stage(1)
    stage.report("worker-9")
    lease = stage.lease(excluded_worker_ids=frozenset({"worker-0"}))
    assert (lease.ttft_s, lease.tpot_s) == (None, None)
    assert stage.lease(excluded_worker_ids=frozenset({"worker-9"})).ttft_s is not None


def test_only_ready_groups_of_the_model_are_candidates() -> None:
    stage = Stage(3)
    stage.report("worker-0", state="draining")
    stage.report("worker-1", model="other")
    assert {stage.lease().worker_id for _ in range(3)} == {"worker-2"}


def test_no_group_of_the_model_is_a_shortage_of_groups() -> None:
    stage = Stage(1)
    stage.dispatcher.fleet.groups[0].disconnect()
    assert stage.place() is Shortage.NO_GROUP


def test_a_request_that_was_moved_goes_where_its_blocks_are() -> None:
    stage = Stage(3)
    stage.report("worker-2", num_running=5, num_context_tokens=2000)
    assert stage.lease().worker_id != "worker-2"
    assert stage.lease(resumed=True, preferred_worker_id="worker-2").worker_id == "worker-2"
    stage.report("worker-2", state="draining")
    assert stage.lease(resumed=True, preferred_worker_id="worker-2").worker_id != "worker-2"


def test_full_groups_are_a_shortage_of_room_except_to_a_resumed_stream() -> None:
    stage = Stage(2, max_group_sequences=256)
    for _ in range(512):
        stage.lease()
    assert stage.place() is Shortage.NO_ROOM
    assert isinstance(stage.place(resumed=True), Lease)


def test_the_cap_grows_with_the_batch_of_the_group() -> None:
    stage = Stage(1, max_group_sequences=1)
    for _ in range(4 * IDLE.max_num_seqs):
        stage.lease()
    assert stage.place() is Shortage.NO_ROOM


def test_all_sequences_of_a_request_count() -> None:
    stage = Stage(1, max_group_sequences=1)
    stage.lease(num_sequences=4 * IDLE.max_num_seqs)
    assert stage.place() is Shortage.NO_ROOM


def test_a_worker_that_failed_the_request_is_avoided() -> None:
    stage = Stage(2)
    assert {stage.lease(excluded_worker_ids=frozenset({"worker-0"})).worker_id for _ in range(3)} == {"worker-1"}


def test_a_worker_that_failed_the_request_counts_again_once_it_was_restarted() -> None:
    stage = Stage(1)
    first = stage.lease(request_id="a")
    stage.now_s += 1.0
    again = {"request_id": "a", "excluded_worker_ids": frozenset({"worker-0"}), "resumed": True}
    assert stage.place(**again) is Shortage.NO_GROUP  # type: ignore[arg-type]
    group = stage.dispatcher.fleet.join("worker-0", endpoint="host:new", group_id="")
    group.update([IDLE], now_s=stage.now_s + 1.0)
    second = stage.lease(**again)
    assert (first.endpoint, second.endpoint) == ("host:worker-0", "host:new")


def test_a_request_that_moves_leaves_no_load_behind() -> None:
    stage = Stage(2)
    first = stage.lease(request_id="a")
    second = stage.lease(request_id="a", resumed=True, excluded_worker_ids=frozenset({first.worker_id}))
    assert second.worker_id != first.worker_id
    assert stage.dispatcher.lease_table.num_leases(first.place) == 0
    assert stage.dispatcher.lease_table.num_in_flight == 1


def test_an_slo_that_no_group_can_keep_is_refused_and_leaves_no_lease() -> None:
    stage = Stage(2)
    with pytest.raises(ResourceExhaustedError):
        stage.place(slo=Slo(ttft_s=0.001))
    assert stage.dispatcher.lease_table.num_in_flight == 0


def test_a_lease_says_how_long_the_request_may_wait_at_the_worker() -> None:
    stage = Stage(1)
    stage.dispatcher.fleet.apply(make_plan(*stage.worker_ids))
    assert stage.lease().slack_s == math.inf
    loose, tight = (stage.lease(slo=Slo(ttft_s=ttft_s)).slack_s for ttft_s in (9.0, 8.0))
    assert loose - tight == pytest.approx(1.0)
    assert 0 < loose < 9.0
    queued = QueuedRequest(request=replace(REQUEST, slo=Slo(ttft_s=9.0)), arrived_s=stage.now_s - 2, failed_at_s=0.0)
    waited = stage.dispatcher.place(queued)
    assert isinstance(waited, Lease)
    assert waited.slack_s == pytest.approx(loose - 2)


def test_long_outputs_make_a_full_batch_wait_longer() -> None:
    stage = Stage(1)
    stage.report("worker-0", num_running=64, num_context_tokens=6400)
    before = stage.lease().ttft_s
    for _ in range(50):
        lease = stage.lease()
        stage.dispatcher.release(
            Release(lease_id=lease.lease_id, outcome=LeaseOutcome.COMPLETE, num_output_tokens=2000)
        )
    after = stage.lease().ttft_s
    assert before is not None
    assert after is not None
    assert after > 2 * before


class DispatcherMachine(RuleBasedStateMachine):
    """Random traffic and failures: the leases always add up, and a lease is only on a group that could take it."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(3, max_group_sequences=1)
        for worker_id in self.stage.worker_ids:
            self.stage.report(worker_id, max_num_seqs=2)
        self.leases: list[Lease] = []
        self.down: set[str] = set()

    @rule(num_sequences=st.integers(1, 3), resumed=st.booleans(), excluded=st.sampled_from(["worker-0", "worker-1"]))
    def route(self, num_sequences: int, *, resumed: bool, excluded: str) -> None:
        lease_table = self.stage.dispatcher.lease_table
        full = {
            f"group-of-{w}" for w in self.stage.worker_ids if lease_table.num_sequences((f"group-of-{w}", "llama")) >= 8
        }
        up = {f"group-of-{w}" for w in self.stage.worker_ids if w not in self.down | {excluded}}
        found = self.stage.place(
            num_sequences=num_sequences, resumed=resumed, excluded_worker_ids=frozenset({excluded})
        )
        if not up:
            assert found is Shortage.NO_GROUP
        elif up <= full and not resumed:
            assert found is Shortage.NO_ROOM
        else:
            assert isinstance(found, Lease)
            assert found.group_id in (up if resumed else up - full)
            self.leases.append(found)

    @rule(index=st.integers(0, 1000), outcome=st.sampled_from(LeaseOutcome))
    def release(self, index: int, outcome: LeaseOutcome) -> None:
        if self.leases:
            lease = self.leases.pop(index % len(self.leases))
            release = Release(lease_id=lease.lease_id, outcome=outcome, num_output_tokens=10)
            assert self.stage.dispatcher.release(release) is lease
            assert self.stage.dispatcher.release(release) is None

    @rule(worker=st.integers(0, 2))
    def break_stream(self, worker: int) -> None:
        self.down.add(f"worker-{worker}")
        self.stage.dispatcher.fleet.groups[worker].disconnect()

    @rule(worker=st.integers(0, 2), num_running=st.integers(0, 10))
    def report(self, worker: int, num_running: int) -> None:
        self.stage.now_s += 0.05
        self.down.discard(f"worker-{worker}")
        self.stage.report(f"worker-{worker}", num_running=num_running, max_num_seqs=2)

    @invariant()
    def leases_add_up(self) -> None:
        lease_table = self.stage.dispatcher.lease_table
        lease_table.check_integrity()
        places = [(f"group-of-{worker_id}", "llama") for worker_id in self.stage.worker_ids]
        assert lease_table.num_in_flight == len(self.leases) == sum(map(lease_table.num_leases, places))


TestDispatcher = DispatcherMachine.TestCase
TestDispatcher.settings = settings(max_examples=50, stateful_step_count=40, deadline=None, derandomize=True)


def test_the_steps_of_a_model_on_the_same_worker_are_waited_for() -> None:
    """Two workers serve llama; on one of them another model is busy, so the idle one is chosen and predicted sooner."""
    stage, alone = Stage(2), Stage(2).lease()
    plan = make_plan(*stage.worker_ids)
    other = replace(plan.assignments[0], model="opt")
    stage.dispatcher.fleet.apply(replace(plan, assignments=(*plan.assignments, other)))
    group = stage.dispatcher.fleet.join("worker-0", endpoint="host:worker-0", group_id="")
    busy = replace(IDLE, model="opt", num_running=8, num_context_tokens=4000, num_pending_prefill_tokens=10_000)
    stage.dispatcher.fleet.update(group, [IDLE, busy], now_s=stage.now_s)
    stage.report("worker-1")
    assert [stage.lease().worker_id for _ in range(2)] == ["worker-1"] * 2
    beside = stage.lease(excluded_worker_ids=frozenset({"worker-1"}))
    turn_s = LATENCY.step_s(prefill_tokens=512, num_decodes=8, context_tokens=4000)
    assert beside.worker_id == "worker-0"
    assert alone.ttft_s is not None
    assert beside.ttft_s == pytest.approx(alone.ttft_s + 1.5 * turn_s)
    assert alone.tpot_s is not None
    assert beside.tpot_s == pytest.approx(alone.tpot_s + turn_s)
    stage.dispatcher.fleet.update(group, [IDLE, replace(IDLE, model="opt")], now_s=stage.now_s)
    assert stage.dispatcher.lease_table.num_sequences((group.group_id, "opt")) == 0


def test_a_worker_that_failed_a_request_counts_again_when_it_has_loaded_the_model_anew() -> None:
    """Its model was unloaded when the request came there, and was loaded again for it."""
    stage = Stage(1)
    first = stage.lease(request_id="a")
    again = {"request_id": "a", "excluded_worker_ids": frozenset({first.worker_id})}
    stage.now_s += 1
    assert stage.place(**again) is Shortage.NO_GROUP
    group = stage.dispatcher.fleet.group("worker-0")
    assert group is not None
    stage.dispatcher.fleet.update(group, [replace(IDLE, model="")], now_s=stage.now_s)
    stage.now_s += 1
    stage.report("worker-0")
    stage.now_s += 1
    failed = QueuedRequest(request=replace(REQUEST, **again), arrived_s=0.0, failed_at_s=first.leased_at_s)
    assert isinstance(stage.dispatcher.place(failed), Lease)


def test_a_model_that_may_be_unloaded_has_no_sole_replica() -> None:
    """The next request would be sent where it is no more."""
    stage = Stage(1)
    assert stage.lease().is_sole_replica
    plan = make_plan(*stage.worker_ids)
    stage.dispatcher.fleet.apply(replace(plan, models=(replace(plan.models[0], min_replicas=0),)))
    assert not stage.lease().is_sole_replica
