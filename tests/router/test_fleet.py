"""The fleet as members, reports and plans change."""

from headway.core.slo import Slo
from headway.router.fleet import Fleet
from tests.router.harness import LATENCY, make_plan
from tests.router.scripted import IDLE


def serving(fleet: Fleet, model: str = "llama") -> list[str]:
    return [group.worker_id for group, _ in fleet.serving(model)]


def test_a_worker_serves_from_its_first_report_until_its_stream_breaks() -> None:
    fleet = Fleet()
    group = fleet.join("worker-0", endpoint="host:1", group_id="group-0")
    assert serving(fleet) == []
    group.update(IDLE, now_s=1.0)
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
    new.update(IDLE, now_s=1.0)
    old.disconnect()
    fleet.leave("worker-0", endpoint="host:1")
    assert serving(fleet) == ["worker-0"]
    fleet.leave("worker-0", endpoint="host:2")
    assert serving(fleet) == []


def test_the_stream_counts_as_new_after_a_break() -> None:
    group = Fleet().join("worker-0", endpoint="host:1", group_id="group-0")
    for now_s in (1.0, 2.0):
        group.update(IDLE, now_s=now_s)
    assert group.connected_at_s == 1.0
    group.disconnect()
    group.update(IDLE, now_s=5.0)
    assert group.connected_at_s == 5.0


def test_plans_name_groups_and_give_their_speed_whoever_comes_first() -> None:
    fleet = Fleet()
    early = fleet.join("worker-0", endpoint="host:1", group_id="")
    assert (early.group_id, early.latency) == ("worker-0", None)
    fleet.apply(make_plan("worker-0", "worker-1"))
    late = fleet.join("worker-1", endpoint="host:2", group_id="")
    assert [(group.group_id, group.latency) for group in (early, late)] == [
        ("group-of-worker-0", LATENCY),
        ("group-of-worker-1", LATENCY),
    ]


def test_models_are_those_planned_and_those_served() -> None:
    fleet = Fleet()
    assert fleet.models == []
    fleet.join("worker-0", endpoint="host:1", group_id="").update(IDLE, now_s=0.0)
    assert fleet.models == ["llama"]
    fleet.join("worker-1", endpoint="host:2", group_id="").update(type(IDLE)(model="opt", state="ready"), now_s=0.0)
    fleet.apply(make_plan("worker-0"))
    assert fleet.models == ["llama", "opt"]


def test_the_plan_tells_a_models_objective() -> None:
    fleet = Fleet()
    assert fleet.slo("llama") == Slo()
    fleet.apply(make_plan("worker-0", slo=Slo(ttft_s=2.0)))
    assert fleet.slo("llama") == Slo(ttft_s=2.0)
    assert fleet.slo("unknown") == Slo()
