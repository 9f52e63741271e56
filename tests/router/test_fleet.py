"""The fleet as members, reports and plans change."""

from dataclasses import replace

import pytest

from headway.core.parallel_config import ParallelConfig
from headway.core.plan.serving import RankShare
from headway.core.slo import Slo
from headway.router.fleet import Fleet
from tests.router.harness import LATENCY, make_plan
from tests.router.scripted import IDLE


def serving(fleet: Fleet, model: str = "llama") -> list[str]:
    return [replica.group.worker_id for replica, _ in fleet.serving(model)]


def test_a_worker_serves_from_its_first_report_until_its_stream_breaks() -> None:
    fleet = Fleet()
    group = fleet.join("worker-0", endpoint="host:1", group_id="group-0")
    assert serving(fleet) == []
    group.update([IDLE], now_s=1.0)
    assert serving(fleet) == ["worker-0"]
    group.disconnect()
    assert serving(fleet) == []


def test_a_worker_that_joins_again_is_the_same_group() -> None:
    fleet = Fleet()
    assert fleet.join("worker-0", endpoint="host:1", group_id="g") is fleet.join(
        "worker-0", endpoint="host:1", group_id="g"
    )


def test_a_worker_at_another_endpoint_is_a_new_group_and_the_old_ones_end_does_not_hurt_it() -> None:
    fleet = Fleet()
    old = fleet.join("worker-0", endpoint="host:1", group_id="group-0")
    new = fleet.join("worker-0", endpoint="host:2", group_id="group-0")
    new.update([IDLE], now_s=1.0)
    old.disconnect()
    fleet.leave("worker-0", endpoint="host:1")
    assert serving(fleet) == ["worker-0"]
    fleet.leave("worker-0", endpoint="host:2")
    assert serving(fleet) == []


def test_the_stream_counts_as_new_after_a_break() -> None:
    group = Fleet().join("worker-0", endpoint="host:1", group_id="group-0")
    for now_s in (1.0, 2.0):
        group.update([IDLE], now_s=now_s)
    assert group.connected_at_s == 1.0
    group.disconnect()
    group.update([IDLE], now_s=5.0)
    assert group.connected_at_s == 5.0


def test_plans_name_groups_and_give_their_speed_whoever_comes_first() -> None:
    fleet = Fleet()
    early = fleet.join("worker-0", endpoint="host:1", group_id="")
    fleet.update(early, [IDLE], now_s=0.0)
    assert (early.group_id, early.replicas["llama"].fitted) == ("worker-0", None)
    fleet.apply(make_plan("worker-0", "worker-1"))
    late = fleet.join("worker-1", endpoint="host:2", group_id="")
    fleet.update(late, [IDLE], now_s=0.0)
    assert [(group.group_id, group.replicas["llama"].fitted) for group in (early, late)] == [
        ("group-of-worker-0", LATENCY),
        ("group-of-worker-1", LATENCY),
    ]


def test_models_are_those_planned_and_those_served() -> None:
    fleet = Fleet()
    assert fleet.models == []
    fleet.join("worker-0", endpoint="host:1", group_id="").update([IDLE], now_s=0.0)
    assert fleet.models == ["llama"]
    fleet.join("worker-1", endpoint="host:2", group_id="").update([type(IDLE)(model="opt", state="ready")], now_s=0.0)
    fleet.apply(make_plan("worker-0"))
    assert fleet.models == ["llama", "opt"]


def test_the_plan_tells_a_models_objective() -> None:
    fleet = Fleet()
    assert fleet.slo("llama") == Slo()
    fleet.apply(make_plan("worker-0", slo=Slo(ttft_s=2.0)))
    assert fleet.slo("llama") == Slo(ttft_s=2.0)
    assert fleet.slo("unknown") == Slo()


def test_a_real_pipeline_takes_the_next_request_when_its_first_stage_is_free() -> None:
    """The last stage leads; it has one of four layers."""
    plan = make_plan("worker-0")
    shares = tuple(
        RankShare(
            worker_id=name, weight_bytes=1, kv_cache_bytes=1, reserved_bytes=1, first_layer=first, num_layers=number
        )
        for name, first, number in (("worker-0", 3, 1), ("worker-1", 0, 3))
    )
    (alone,) = plan.assignments
    fleet = Fleet()
    group = fleet.join("worker-0", endpoint="host:1", group_id="")
    fleet.update(group, [IDLE], now_s=0.0)
    fleet.apply(replace(plan, assignments=(replace(alone, parallel=ParallelConfig(pp=2), ranks=shares),)))
    stages = group.replicas["llama"].stage_latencies
    expected = [share * LATENCY.one_pass_s([10]) for share in (0.75, 0.25)]
    assert [stage.one_pass_s([10]) for stage in stages] == pytest.approx(expected)
    fleet.apply(plan)
    assert group.replicas["llama"].stage_latencies == (LATENCY,)
