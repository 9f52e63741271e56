"""Processes that cells run, as their leases tell of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest
from prometheus_client import REGISTRY

from headway.controller.cell_processes import CellProcesses
from headway.controller.clients.cell import CellClient
from headway.core.errors import UnavailableError
from headway.rpc.interceptors import Context
from headway.rpc.peers import Peers
from headway.rpc.tasks import end_tasks
from headway.store.membership import Member, Membership
from headway.store.redis import Database
from headway.v1 import cell_pb2, cell_pb2_grpc


def member(kind: str, member_id: str, *, started_at_s: float = 1.0) -> Member:
    """Every run has the same address and pid 1, as in a pod whose container is started again."""
    return Member(
        kind=kind,
        member_id=member_id,
        endpoint="10.0.0.1:9100",
        metrics_endpoint="",
        pid=1,
        started_at_s=started_at_s,
    )


async def always() -> bool:
    return True


@asynccontextmanager
async def watched(
    database: Database, *, may_act: Callable[[], Awaitable[bool]] = always
) -> AsyncIterator[tuple[CellProcesses, Peers, list[tuple[str, int]]]]:
    deaths: list[tuple[str, int]] = []
    async with Peers(Membership(database)).watching() as peers:
        processes = CellProcesses(
            peers, client=CellClient(peers), num_workers=lambda: 2, has_workers=False, may_act=may_act
        )
        watch = asyncio.create_task(processes.watch(on_death=lambda name, pid: deaths.append((name, pid))))
        try:
            yield processes, peers, deaths
        finally:
            await end_tasks([watch])


async def eventually(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - what changes it is the code under test
            await asyncio.sleep(0.01)


async def test_a_container_that_was_started_again_is_another_run(database: Database) -> None:
    membership = Membership(database)
    async with watched(database) as (_, peers, deaths):
        await membership.enter(member("worker", "cell-0-0"))
        await eventually(lambda: len(peers.members("worker")) == 1)
        await membership.enter(member("worker", "cell-0-0", started_at_s=2.0))
        await eventually(lambda: deaths == [("cell-0-0", 1)])


async def test_a_lease_that_is_only_away_is_no_death(database: Database) -> None:
    membership, worker = Membership(database), member("worker", "cell-0-0")
    async with watched(database) as (_, peers, deaths):
        await membership.enter(worker)
        await eventually(lambda: len(peers.members("worker")) == 1)
        await membership.withdraw(worker)
        await eventually(lambda: not peers.members("worker"))
        await membership.enter(worker)
        await eventually(lambda: len(peers.members("worker")) == 1)
        assert deaths == []


async def test_what_is_missing_to_a_stack_is_told(database: Database) -> None:
    membership = Membership(database)
    for kind, name in (("router", "r"), ("gateway", "g"), ("kvcache", "k"), ("cell", "c"), ("worker", "c-0")):
        await membership.enter(member(kind, name))
    async with watched(database) as (processes, _, _):
        statuses = {status.name: status.state for status in processes.statuses(is_stopping=False)}
    assert statuses == {
        **dict.fromkeys(("r", "g", "k", "c", "c-0"), "ready"),
        **dict.fromkeys(("planner", "profiler", "worker 2 of 2"), "starting"),
    }


async def test_a_worker_whose_cell_is_away_is_left_alone(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    async with watched(database) as (processes, _, _):
        processes.end_run("gone-0", pid=1)
        await eventually(lambda: "There is no cell gone" in caplog.text)


async def test_metrics_tell_how_many_there_are_of_each_kind(database: Database) -> None:
    membership, leaving = Membership(database), member("router", "r-1")
    for each in (leaving, member("router", "r-0"), member("worker", "c-0"), member("cell", "c")):
        await membership.enter(each)

    def told() -> dict[str, float | None]:
        kinds = ("router", "worker", "cell", "planner")
        return {kind: REGISTRY.get_sample_value("headway:processes_ready", {"kind": kind}) for kind in kinds}

    async with watched(database):
        await eventually(lambda: told() == {"router": 2, "worker": 1, "cell": 1, "planner": 0})
        await membership.withdraw(leaving)
        await eventually(lambda: told()["router"] == 1)


class EndingCell(cell_pb2_grpc.CellServiceServicer):
    """A cell that ends runs when it is asked for the second time."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    @asynccontextmanager
    async def serving(self, membership: Membership) -> AsyncIterator[None]:
        """It is there, and so is its worker."""
        server = grpc.aio.server()
        cell_pb2_grpc.add_CellServiceServicer_to_server(self, server)
        endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        await membership.enter(member("worker", "cell-0-0"))
        await membership.enter(replace(member("cell", "cell-0"), endpoint=endpoint))
        try:
            yield
        finally:
            await server.stop(grace=None)

    async def EndRun(  # noqa: N802 - the method's name in the protocol
        self, request: cell_pb2.EndRunRequest, context: Context
    ) -> cell_pb2.EndRunResponse:
        self.asked.append((request.worker_id, request.pid))
        if len(self.asked) == 1:
            raise UnavailableError("The cell is busy.")
        return cell_pb2.EndRunResponse()


async def test_a_cell_that_does_not_answer_is_asked_again_while_the_run_goes_on(database: Database) -> None:
    """Else the controller would count on a next run for ever, and load nothing on the one that there is."""
    cell = EndingCell()
    async with cell.serving(Membership(database)), watched(database) as (processes, peers, _):
        await eventually(lambda: len(peers.everyone) == 2)
        processes.end_run("cell-0-0", pid=1)
        await eventually(lambda: cell.asked == 2 * [("cell-0-0", 1)])


async def test_a_controller_that_another_one_has_succeeded_has_no_run_ended(database: Database) -> None:
    """It stood still, and its successor counts on the run that it was about to have ended."""
    cell, looks = EndingCell(), 0

    async def may_act() -> bool:
        nonlocal looks
        looks += 1
        return looks > 1

    async with cell.serving(Membership(database)), watched(database, may_act=may_act) as (processes, peers, _):
        await eventually(lambda: len(peers.everyone) == 2)
        processes.end_run("cell-0-0", pid=1)
        await eventually(lambda: looks == 1)
        assert cell.asked == []
        await eventually(lambda: cell.asked == 2 * [("cell-0-0", 1)])
