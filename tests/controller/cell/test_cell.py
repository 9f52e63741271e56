"""A cell is ready once its workers have what the plan gives them."""

from collections.abc import Callable

from headway.controller.cell.cell import Cell
from headway.controller.clients.worker import WorkerControlClient
from headway.core.plan.serving import ServingPlan
from headway.rpc.peers import Peers
from headway.store.membership import Member, Membership
from headway.store.plans import PlanStore
from headway.store.redis import Database


def _cell(database: Database, peers: Peers, *, ready_without_plan: bool) -> Cell:
    return Cell(
        ["worker-0", "worker-1"],
        peers=peers,
        plans=PlanStore(database),
        client=WorkerControlClient(peers, epoch=None),
        ready_without_plan=ready_without_plan,
    )


async def _enter(database: Database, name: str) -> None:
    member = Member(kind="worker", member_id=name, endpoint=f"{name}:1", metrics_endpoint="", pid=1, started_at_s=1.0)
    await Membership(database).enter(member)


async def test_where_models_are_declared_later_it_is_ready_once_its_workers_are_there(database: Database) -> None:
    """`helm install --wait` waited for a plan, which waits for a model, which nobody could declare before."""
    async with Peers(Membership(database)).watching() as peers:
        patient, strict = (_cell(database, peers, ready_without_plan=may) for may in (True, False))
        await _enter(database, "worker-0")
        await peers.refresh()
        assert not await patient.is_ready()
        await _enter(database, "worker-1")
        await peers.refresh()
        assert await patient.is_ready()
        assert not await strict.is_ready()


async def test_with_a_plan_it_is_not_ready_before_that_is_loaded(
    database: Database, make_plan: Callable[..., ServingPlan]
) -> None:
    await PlanStore(database).set_current(make_plan({"worker-0": "tiny", "worker-1": "tiny"}), replaces="")
    async with Peers(Membership(database)).watching() as peers:
        for name in ("worker-0", "worker-1"):
            await _enter(database, name)
        await peers.refresh()
        assert not await _cell(database, peers, ready_without_plan=True).is_ready()
