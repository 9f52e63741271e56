"""When a pool grows and shrinks, on synthetic metrics; and what is unknown, stale and zero."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from headway.controller.clients.router import view_of
from headway.controller.kubernetes.demand import (
    Demand,
    DemandSample,
    DemandWindow,
    Knowledge,
    ModelDemand,
    capacities,
)
from headway.controller.kubernetes.scaling import ScalingDecision, ScalingPolicy, decide
from headway.controller.router_view import ModelSample, RouterView
from headway.core.plan.serving import ServingPlan
from headway.core.slo import Slo
from headway.v1 import router_pb2

POLICY = ScalingPolicy(min_cells=1, max_cells=6)


def known(attainment: float | None = 1.0, present: int = 0, *, peak: int = 0, watched_s: float = 1e4) -> Demand:
    models = {"chat": ModelDemand(attainment=attainment, num_present=present, num_peak=max(present, peak))}
    return Demand(knowledge=Knowledge.KNOWN, models=models, watched_s=watched_s)


async def decided(
    demand: Demand,
    num_cells: int,
    *,
    policy: ScalingPolicy = POLICY,
    is_settled: bool = True,
    since_change_s: float = 1e4,
    room: Callable[[int], int | None] = lambda num: 10 * num,
) -> ScalingDecision:
    """With room for ten requests in each cell, unless it is given otherwise."""

    async def foresee(num: int) -> Mapping[str, int] | None:
        found = room(num)
        return None if found is None else {"chat": found}

    return await decide(
        policy, demand, num_cells=num_cells, is_settled=is_settled, since_change_s=since_change_s, foresee=foresee
    )


async def test_a_pool_grows_to_where_the_planner_sees_room() -> None:
    assert (await decided(known(0.5, present=30), 2)).num_cells == 4
    assert (await decided(known(None, present=17), 2)).num_cells == 3
    decision = await decided(known(0.97, present=1), 2)
    assert (decision.num_cells, decision.reason) == (3, "DemandNotMet")
    assert decision.message == "chat: 97.0% of its requests met their SLO"


async def test_it_grows_at_most_twice_as_far_and_within_bounds() -> None:
    assert (await decided(known(0.5, present=500), 2)).num_cells == 4
    assert (await decided(known(0.5, present=500), 5)).num_cells == 6
    assert (await decided(known(0.5, present=500), 6)).reason == "AtMaximum"
    assert (await decided(known(), 9)).num_cells == 6
    assert (await decided(known(), 0)).num_cells == 1


async def test_cells_that_do_not_help_are_not_asked_for() -> None:
    decision = await decided(known(0.5, present=30), 2, room=lambda num: 20)
    assert (decision.num_cells, decision.reason) == (2, "MoreCellsDoNotHelp")
    assert (await decided(known(0.5, present=30), 2, room=lambda num: 20 if num < 4 else 40)).num_cells == 4


async def test_it_shrinks_one_by_one_where_the_rest_has_room_for_the_peak() -> None:
    decision = await decided(known(1.0, present=2, peak=12), 3)
    assert (decision.num_cells, decision.reason) == (2, "DemandMetByLess")
    assert (await decided(known(1.0, present=2, peak=13), 3)).reason == "DemandMet"
    assert (await decided(known(1.0), 3, room=lambda num: 10 if num >= 3 else None)).reason == "NeededForModels"
    assert (await decided(known(1.0), 1)).reason == "AtMinimum"


async def test_nobody_asking_is_a_reason_to_shrink_and_not_knowing_is_none() -> None:
    assert (await decided(known(None), 3)).num_cells == 2
    for knowledge in (Knowledge.UNKNOWN, Knowledge.STALE):
        decision = await decided(Demand(knowledge=knowledge, models={}, watched_s=1e4), 3)
        assert (decision.num_cells, decision.reason) == (3, knowledge)


async def test_changes_are_waited_for() -> None:
    assert (await decided(known(0.5, present=30), 2, is_settled=False)).reason == "Settling"
    assert (await decided(known(0.5, present=30), 2, since_change_s=59)).reason == "Settling"
    assert (await decided(known(0.5, present=30), 2, since_change_s=61)).num_cells == 4
    assert (await decided(known(), 3, since_change_s=61)).reason == "CoolingDown"
    assert (await decided(known(watched_s=299), 3)).reason == "CoolingDown"


async def test_a_steady_load_does_not_make_it_swing() -> None:
    """What it has grown for is no reason to shrink, and the other way round."""
    for present in range(61):
        num_cells = 1
        seen = []
        for _ in range(12):
            capacity = 10 * num_cells
            attainment = 1.0 if present <= capacity else 0.5
            num_cells = (await decided(known(attainment, present=present), num_cells)).num_cells
            seen.append(num_cells)
        assert len(set(seen[-6:])) == 1, (present, seen)


def window(*samples: tuple[float, int, int, int], now_s: float) -> Demand:
    """Samples of a time, requests that met their SLO, all that had one, and those present."""
    found = DemandWindow(window_s=60, peak_s=300)
    for at_s, num_met, num_judged, num_present in samples:
        model = ModelSample(num_met=num_met, num_judged=num_judged, num_present=num_present)
        found.add(DemandSample(at_s=at_s, models={"chat": model}))
    return found.demand(now_s=now_s)


def every_10_s(until_s: float, *, met_of_ten: int = 10, present: int = 3) -> list[tuple[float, int, int, int]]:
    return [(10.0 * at, met_of_ten * at, 10 * at, present) for at in range(int(until_s) // 10 + 1)]


def test_attainment_is_that_of_the_window() -> None:
    demand = window(*every_10_s(600, met_of_ten=9), now_s=605)
    assert demand.knowledge is Knowledge.KNOWN
    assert demand.models["chat"].attainment == pytest.approx(0.9)
    assert demand.watched_s >= 300
    worse = [*every_10_s(600), (610.0, 600, 660, 3), (620.0, 600, 700, 3)]
    assert window(*worse, now_s=620).models["chat"].attainment == pytest.approx(40 / 140)


def test_a_peak_is_remembered_longer_than_what_is_present() -> None:
    samples = [(10.0 * at, 0, 0, 50 if at == 40 else 3) for at in range(61)]
    chat = window(*samples, now_s=600).models["chat"]
    assert (chat.attainment, chat.num_present, chat.num_peak) == (None, 3, 50)


def test_unknown_stale_and_zero_are_three_things() -> None:
    assert window(now_s=0).knowledge is Knowledge.UNKNOWN
    assert window(*every_10_s(50), now_s=50).knowledge is Knowledge.UNKNOWN
    assert window(*every_10_s(100), now_s=116).knowledge is Knowledge.STALE
    zero = window(*[(10.0 * at, 0, 0, 0) for at in range(11)], now_s=100)
    assert (zero.knowledge, zero.models["chat"]) == (Knowledge.KNOWN, ModelDemand())


def test_a_gap_and_a_lost_counter_begin_anew() -> None:
    gap = [*every_10_s(100), (130.0, 110, 110, 3), (140.0, 120, 120, 3)]
    assert window(*gap, now_s=140).knowledge is Knowledge.UNKNOWN
    reset = [*every_10_s(100), (110.0, 1, 1, 3)]
    assert window(*reset, now_s=110).knowledge is Knowledge.UNKNOWN


def test_a_plans_room_is_what_keeps_the_objective(make_plan: Callable[..., ServingPlan]) -> None:

    plan = make_plan({"worker-0": "chat", "worker-1": "chat", "worker-2": "other"})
    most = plan.assignments[0].max_num_seqs
    assert capacities(plan) == {"chat": 2 * most, "other": most}
    models = tuple(replace(model, slo=Slo(tpot_s=1.5e-3)) if model.name == "chat" else model for model in plan.models)
    assert capacities(replace(plan, models=models)) == {"chat": 2 * min(most, 5), "other": most}


def test_the_routers_view_is_read() -> None:
    fleet = router_pb2.GetFleetResponse(
        groups=[
            router_pb2.GroupLoad(model="chat", worker_id="a", state="ready", num_in_flight=3, num_running=1),
            router_pb2.GroupLoad(model="chat", worker_id="b", state="ready", num_running=2, num_waiting=4),
            router_pb2.GroupLoad(model="code", worker_id="c", state="ready", num_in_flight=1),
            router_pb2.GroupLoad(model="", worker_id="d", state="unreachable"),
        ],
        attainments=[router_pb2.ModelAttainment(model="chat", num_met=5, num_missed=2, num_rejected=1)],
        num_queued=3,
        arrivals=[
            router_pb2.ModelArrivals(model="chat", num_waiting=2, num_arrived=9),
            router_pb2.ModelArrivals(model="asleep", num_waiting=1, num_arrived=1),
        ],
        run_id="first",
    )
    view = view_of(fleet)
    assert view.models == {
        "chat": ModelSample(num_met=5, num_judged=8, num_present=11, num_arrived=9),
        "code": ModelSample(num_present=1),
        "asleep": ModelSample(num_present=1, num_arrived=1),
    }
    assert view.run_id == "first"
    assert view.reporting == {("chat", "a"), ("chat", "b"), ("code", "c")}


def test_a_group_of_the_plan_that_does_not_report_is_noticed(make_plan: Callable[..., ServingPlan]) -> None:
    plan = make_plan({"a": "chat", "b": "chat"})
    view = RouterView(models={}, reporting=frozenset({("chat", "a")}))
    assert not view.has_all_of(plan)
    assert replace(view, reporting=view.reporting | {("chat", "b")}).has_all_of(plan)
