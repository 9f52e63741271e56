"""Prompts go to prefill groups, and the group where their sequences go on is chosen with them."""

from collections import Counter
from dataclasses import replace

import pytest

from headway.core.errors import ResourceExhaustedError
from headway.core.plan.serving import Role
from headway.core.slo import Slo
from headway.router.lease import LeaseOutcome, Release
from tests.router.harness import make_plan
from tests.router.stage import Stage


def stage(num_prefill: int = 1, num_decode: int = 1) -> Stage:
    """worker-0 and so on for prefill, the ones after them for decode."""
    found = Stage(num_prefill + num_decode)
    plan = make_plan(*found.worker_ids)
    roles = [Role.PREFILL] * num_prefill + [Role.DECODE] * num_decode
    assignments = tuple(
        replace(assignment, role=role) for assignment, role in zip(plan.assignments, roles, strict=True)
    )
    found.dispatcher.fleet.apply(replace(plan, assignments=assignments))
    return found


def test_one_decision_names_both_groups() -> None:
    lease = stage().lease()
    assert lease.worker_id == "worker-0"
    assert lease.decode_target is not None
    assert (lease.decode_target.worker_id, lease.decode_group_id) == ("worker-1", "group-of-worker-1")
    assert lease.reason.endswith("; goes on at group-of-worker-1 with 0 sequences")
    assert not lease.is_sole_replica, "the decode group may hold more of the next prompt"


def test_decode_groups_share_what_is_under_way_to_them() -> None:
    found = stage(1, 3)
    leases = [found.lease() for _ in range(30)]
    assert Counter(lease.decode_group_id for lease in leases) == {f"group-of-worker-{i}": 10 for i in (1, 2, 3)}
    for lease in leases:
        found.dispatcher.release(Release(lease_id=lease.lease_id, outcome=LeaseOutcome.CANCELLED))
    found.dispatcher.lease_table.check_integrity()
    assert found.dispatcher.lease_table.num_expected(("group-of-worker-1", "llama")) == 0


def test_a_busy_or_a_full_decode_group_is_passed_over() -> None:
    found = stage(1, 2)
    found.report("worker-1", num_running=40, num_context_tokens=40_000)
    assert {found.lease().decode_group_id for _ in range(5)} == {"group-of-worker-2"}
    found.report("worker-1")
    found.report("worker-2", num_free_blocks=10)
    assert {found.lease().decode_group_id for _ in range(5)} == {"group-of-worker-1"}
    found.report("worker-1", num_free_blocks=10)
    assert found.lease().decode_group_id


def test_a_stream_that_was_handed_over_goes_where_its_blocks_are_and_stays_there() -> None:
    found = stage(2, 2)
    first = found.lease(request_id="a")
    assert first.decode_target is not None
    second = found.lease(request_id="a", resumed=True, preferred_worker_id=first.decode_target.worker_id)
    assert second.worker_id == first.decode_target.worker_id
    assert second.decode_target is None
    assert found.dispatcher.lease_table.num_expected(first.decode_place) == 0


@pytest.mark.parametrize("fields", [{"stays": True}, {"max_output_tokens": 1}])
def test_what_cannot_or_need_not_move_stays_where_its_prompt_is_computed(fields: dict[str, object]) -> None:
    lease = stage().lease(**fields)
    assert (lease.worker_id, lease.decode_target) == ("worker-0", None)


def test_either_kind_does_both_while_the_other_is_down() -> None:
    found = stage()
    prefill, decode = found.dispatcher.fleet.groups
    decode.disconnect()
    assert (found.lease().worker_id, found.lease().decode_target) == ("worker-0", None)
    found.report("worker-1")
    prefill.disconnect()
    assert (found.lease().worker_id, found.lease().decode_target) == ("worker-1", None)


def test_a_stream_whose_decode_worker_died_starts_again_at_a_prefill_group() -> None:
    found = stage(1, 2)
    lease = found.lease(resumed=True, excluded_worker_ids=frozenset({"worker-1"}))
    assert (lease.worker_id, lease.decode_group_id) == ("worker-0", "group-of-worker-2")


def test_objectives_are_predicted_from_the_group_that_keeps_them() -> None:
    found = stage()
    idle = found.lease()
    assert idle.ttft_s is not None
    assert idle.tpot_s is not None
    found.report("worker-1", num_running=50, num_context_tokens=50_000)
    busy = found.lease()
    assert busy.ttft_s is not None
    assert busy.tpot_s is not None
    assert busy.tpot_s > 3 * idle.tpot_s
    assert busy.ttft_s < 3 * idle.ttft_s
    with pytest.raises(ResourceExhaustedError, match="A token would take"):
        found.place(slo=Slo(tpot_s=2 * idle.tpot_s))
    found.report("worker-1")
    found.report("worker-0", num_waiting=20, num_pending_prefill_tokens=20_000)
    with pytest.raises(ResourceExhaustedError, match="The first token would take"):
        found.place(slo=Slo(ttft_s=2 * idle.ttft_s))


def test_a_prefill_group_fetches_what_the_decode_group_has_of_a_conversation() -> None:
    found = stage()
    plan = make_plan(*found.worker_ids)
    assignments = tuple(
        replace(assignment, role=role, kv_cache_bytes=assignment.num_blocks << 16)
        for assignment, role in zip(plan.assignments, (Role.PREFILL, Role.DECODE), strict=True)
    )
    found.dispatcher.fleet.apply(replace(plan, assignments=assignments))
    lease = found.lease(cached_blocks={"worker-0": 5, "worker-1": 20})
    assert lease.source is not None
    assert (lease.source.worker_id, lease.source.num_blocks) == ("worker-1", 20)
    assert (lease.worker_id, lease.decode_group_id) == ("worker-0", "group-of-worker-1")
