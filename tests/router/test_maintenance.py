"""What happens on the side: plans, lost gateways, lost leases."""

import asyncio
import math
import time

import pytest

from headway.core.slo import Slo
from headway.router import maintenance
from headway.router.lease import Lease
from headway.store.membership import Membership
from headway.store.plans import PlanStore
from headway.store.redis import Database
from tests.router.conftest import StartRouter
from tests.router.harness import RunningRouter, eventually, make_plan
from tests.router.scripted import ScriptedWorker, make_member


def knows_gateway(router: RunningRouter) -> bool:
    return bool(router.maintenance._peers.members("gateway"))


async def test_the_plan_in_redis_is_followed(database: Database, routing: StartRouter) -> None:
    async with ScriptedWorker.running(database, "worker-0"), routing() as router:
        plans, fleet = PlanStore(database), router.service.dispatcher.fleet
        following = asyncio.create_task(router.service.follower.watch())
        assert not (await router.route("a")).HasField("predicted_ttft_s")
        await plans.set_current(make_plan("worker-0"), replaces="")
        await eventually(lambda: fleet.groups[0].replicas["llama"].fitted is not None)
        assert (await router.route("b")).predicted_ttft_s == pytest.approx(0.11, rel=2)
        await plans.set_current(make_plan("worker-0", plan_id="plan-2", slo=Slo(ttft_s=3.0)), replaces="plan-1")
        await eventually(lambda: fleet.slo("llama") == Slo(ttft_s=3.0))
        following.cancel()


async def test_nobody_waits_for_reports_of_ranks_that_do_not_lead(
    database: Database, routing: StartRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_SETTLE_S", math.inf)  # it would wait for ever
    async with (
        ScriptedWorker.running(database, "worker-0"),
        ScriptedWorker.running(database, "worker-1", rank=1),
        routing() as router,
    ):
        await router.maintenance.settle()
        assert [group.worker_id for group in router.service.dispatcher.fleet.groups] == ["worker-0"]


async def test_leases_of_a_gateway_that_is_gone_are_dropped(database: Database, routing: StartRouter) -> None:
    membership, gateway = Membership(database), make_member("gateway", "gateway-0")
    await membership.enter(gateway)
    async with ScriptedWorker.running(database, "worker-0"), routing(gateway_grace_s=1.0) as router:
        lease_table, keeper = router.service.dispatcher.lease_table, router.maintenance
        await router.route("a")
        await eventually(lambda: knows_gateway(router))
        keeper.end_lost_leases(time.monotonic())
        assert lease_table.num_in_flight == 1
        await membership.withdraw(gateway)
        await eventually(lambda: not knows_gateway(router))
        now_s = time.monotonic()
        keeper.end_lost_leases(now_s)
        keeper.end_lost_leases(now_s + 0.9)
        assert lease_table.num_in_flight == 1
        keeper.end_lost_leases(now_s + 1.0)
        assert lease_table.num_in_flight == 0


async def test_leases_of_a_gateways_former_life_are_dropped(database: Database, routing: StartRouter) -> None:
    async with ScriptedWorker.running(database, "worker-0"), routing() as router:
        await router.route("a")
        started_s = time.time()
        await router.route("b")
        await Membership(database).enter(make_member("gateway", "gateway-0", started_at_s=started_s))
        await eventually(lambda: knows_gateway(router))
        router.maintenance.end_lost_leases(time.monotonic())
        lease_table = router.service.dispatcher.lease_table
        assert [lease.request_id for lease in lease_table.latest(("group-of-worker-0", "llama"))] == ["b"]


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
async def test_a_clock_that_is_set_ends_no_leases(
    database: Database, routing: StartRouter, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    await Membership(database).enter(make_member("gateway", "gateway-0"))
    async with ScriptedWorker.running(database, "worker-0"), routing() as router:
        await eventually(lambda: knows_gateway(router))
        router.maintenance.end_lost_leases(time.monotonic())
        await router.route("a")
        set_s = time.time() + step_s
        monkeypatch.setattr("headway.router.maintenance.time.time", lambda: set_s)
        router.maintenance.end_lost_leases(time.monotonic())
        assert router.service.dispatcher.lease_table.num_in_flight == 1


async def test_a_place_that_a_lost_gateway_held_goes_to_the_next_in_line(
    database: Database, routing: StartRouter
) -> None:
    settings = {"max_group_sequences": 1, "gateway_grace_s": 0.0}
    async with ScriptedWorker.running(database, "worker-0") as worker, routing(**settings) as router:
        worker.report(max_num_seqs=1)
        await eventually(lambda: router.service.fleet_view().groups[0].state == "ready")
        for i in range(4):
            await router.route(f"r{i}", gateway_id="gateway-9")
        waiting = asyncio.create_task(router.route("a"))
        await eventually(lambda: router.service.fleet_view().num_queued == 1)
        router.maintenance.end_lost_leases(time.monotonic())
        assert (await waiting).worker_id == "worker-0"


async def test_a_lease_that_is_never_released_expires(database: Database, routing: StartRouter) -> None:
    async with ScriptedWorker.running(database, "worker-0"), routing(max_lease_s=60.0) as router:
        lease_table = router.service.dispatcher.lease_table
        await router.route("a")
        router.maintenance.end_lost_leases(time.monotonic() + 59.0)
        assert lease_table.num_in_flight == 1
        router.maintenance.end_lost_leases(time.monotonic() + 61.0)
        assert lease_table.num_in_flight == 0


async def test_leases_that_do_not_add_up_end_the_process(database: Database, routing: StartRouter) -> None:
    async with ScriptedWorker.running(database, "worker-0"), routing() as router:
        lease = await router.route("a")
        lease_table = router.service.dispatcher.lease_table
        removed: Lease = lease_table._leases.pop(lease.lease_id)
        assert removed.request_id == "a"
        with pytest.raises(AssertionError, match="not those in flight"):
            await asyncio.wait_for(router.maintenance.maintain(), 5.0)
