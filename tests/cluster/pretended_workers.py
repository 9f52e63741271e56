"""`python -m tests.cluster.pretended_workers`: the workers of each cell that a control plane says runs.

All of them are in this process, with their cells: each answers as a real one does, but computes nothing. They load
whatever they are told, and when their pod is gone so are they, without a word. A list in Redis, `loads`, tells which
loads they have begun, ended and refused.
"""

import argparse
import asyncio
import itertools
import json
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import headway.rpc  # noqa: F401 - gRPC's settings, before gRPC

import grpc  # isort: skip
import httpx
import uvloop

from headway.core.catalogue import built_in_catalogue
from headway.core.errors import FailedPreconditionError, NotFoundError
from headway.rpc.interceptors import EPOCH_METADATA_KEY, CallInterceptor, Context
from headway.rpc.tasks import end_tasks
from headway.store.membership import RENEW_EVERY_S, Member, Membership
from headway.store.redis import Database
from headway.v1 import cell_pb2, cell_pb2_grpc, worker_pb2, worker_pb2_grpc
from headway.worker.hardware import emulated_hardware
from tests.controller.scripted import ScriptedWorker

_CELLS = {"labelSelector": "headway/role=worker"}


class Lease:
    """A member's, from `hold` until it is `dropped`."""

    def __init__(self, membership: Membership, member: Member) -> None:
        self.member = member
        self._membership = membership
        self._keeping: asyncio.Task[None] | None = None

    async def hold(self) -> None:
        await self._membership.enter(self.member)
        self._keeping = asyncio.create_task(self._keep())

    async def change(self, **changes: Any) -> None:
        self.member = replace(self.member, **changes)
        await self._membership.enter(self.member)

    async def drop(self) -> None:
        """It lapses in a while."""
        if self._keeping is not None:
            await end_tasks([self._keeping])

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            await self._membership.renew(self.member)


class Meetings:
    """Where the ranks of a group wait for each other."""

    def __init__(self) -> None:
        self._present: defaultdict[str, set[int]] = defaultdict(set)
        self._complete: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def wait(self, rendezvous: str, *, rank: int, num_ranks: int) -> None:
        self._present[rendezvous].add(rank)
        if len(self._present[rendezvous]) == num_ranks:
            self._complete[rendezvous].set()
        await self._complete[rendezvous].wait()


class MeetingWorker(ScriptedWorker):
    """A run of a worker whose group is in this process too. It tells what came of its loads, and whose they were."""

    def __init__(self, worker_id: str, database: Database, *, pid: int, meetings: Meetings, **facts: Any) -> None:
        super().__init__(worker_id, database, **facts)
        self._pid = pid
        self._all_meetings = meetings

    async def LoadModel(  # noqa: N802
        self, request: worker_pb2.LoadModelRequest, context: Context
    ) -> AsyncIterator[worker_pb2.LoadModelResponse]:
        is_begun = False
        try:
            async for answer in super().LoadModel(request, context):
                if not is_begun:
                    await self._note("begun", request, context)
                    is_begun = True
                if answer.done:
                    await self._note("loaded", request, context)
                yield answer
        except FailedPreconditionError:
            await self._note("refused", request, context)
            raise

    async def wait_for_ranks(self, request: worker_pb2.LoadModelRequest) -> None:
        num_ranks = len(request.worker_ids)
        if num_ranks > 1:
            await self._all_meetings.wait(request.rendezvous, rank=request.rank, num_ranks=num_ranks)

    async def _note(self, what: str, request: worker_pb2.LoadModelRequest, context: Context) -> None:
        epoch = str(dict(context.invocation_metadata() or ())[EPOCH_METADATA_KEY])
        told = {
            "what": what,
            "worker": self.worker_id,
            "pid": self._pid,
            "model": request.model,
            "max_model_len": request.max_model_len,
            "group": list(request.worker_ids),
            "epoch": int(epoch),
            "at_s": time.time(),
        }
        await self._database.redis.rpush(f"{self._database.namespace}:loads", json.dumps(told))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """What a pod says of its cell.

    Attributes:
        address: a loopback one, of the pod's own: workers at one address are on one machine.
        device: that its workers emulate.
    """

    name: str
    address: str
    num_workers: int
    pool: str
    device: str

    @classmethod
    def of(cls, pod: dict[str, Any]) -> "Pod":
        parser = argparse.ArgumentParser()
        parser.add_argument("--workers", type=int)
        parser.add_argument("--pool")
        parser.add_argument("--emulate")
        [container] = pod["spec"]["containers"]
        told, _ = parser.parse_known_args(container["args"])
        return cls(
            name=pod["metadata"]["name"],
            address=f"127.{pod['status']['podIP'].partition('.')[2]}",
            num_workers=told.workers,
            pool=told.pool,
            device=told.emulate,
        )


class PretendedWorker:
    """One run of a worker: `start` it, and `end` it as a process that is killed."""

    def __init__(self, worker_id: str, pod: Pod, *, cells: "Cells") -> None:
        self.pid = next(cells.pids)
        self._server = grpc.aio.server(interceptors=[CallInterceptor(None)])
        port = self._server.add_insecure_port(f"{pod.address}:0")
        member = _member("worker", worker_id, endpoint=f"{pod.address}:{port}", pid=self.pid)
        self._lease = Lease(cells.membership, replace(member, state="starting", pool=pod.pool))
        memory = built_in_catalogue().device(pod.device).memory
        assert memory is not None
        worker = MeetingWorker(
            worker_id,
            cells.database,
            pid=self.pid,
            meetings=cells.meetings,
            on_state=self._show,
            hardware=emulated_hardware(pod.device, memory_bytes=int(memory.value)),
        )
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, self._server)

    async def start(self) -> None:
        await self._server.start()
        await self._lease.hold()

    async def end(self) -> None:
        await self._server.stop(grace=None)
        await self._lease.drop()

    async def _show(self, state: str, model: str) -> None:
        await self._lease.change(state=state, models=(model,) if model else ())


class PretendedCell:
    """The workers of a pod; a run that ends is followed by another one."""

    def __init__(self, pod: Pod, *, cells: "Cells") -> None:
        self._pod = pod
        self._cells = cells
        self._lease = Lease(cells.membership, _member("cell", pod.name, endpoint=cells.endpoint, pid=1))
        self._workers: dict[str, PretendedWorker] = {}

    async def start(self) -> None:
        await self._lease.hold()
        for index in range(self._pod.num_workers):
            await self._start(f"{self._pod.name}-{index}")

    async def end(self) -> None:
        await self._lease.drop()
        for worker in self._workers.values():
            await worker.end()

    async def end_run(self, worker_id: str, pid: int) -> None:
        if self._workers[worker_id].pid == pid:
            await self._workers[worker_id].end()
            await self._start(worker_id)

    async def _start(self, worker_id: str) -> None:
        self._workers[worker_id] = PretendedWorker(worker_id, self._pod, cells=self._cells)
        await self._workers[worker_id].start()


class Cells(cell_pb2_grpc.CellServiceServicer):
    """All cells, by the uid of their pod; they have one server."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.membership = Membership(database)
        self.meetings = Meetings()
        self.pids = itertools.count(1000)
        self._server = grpc.aio.server(interceptors=[CallInterceptor(None)])
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._cells: dict[str, tuple[str, PretendedCell]] = {}  # with the pod's name

    async def serve(self) -> None:
        cell_pb2_grpc.add_CellServiceServicer_to_server(self, self._server)
        await self._server.start()

    async def hear(self, pod: dict[str, Any], *, is_there: bool) -> None:
        uid = pod["metadata"]["uid"]
        runs = is_there and pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        if runs and uid not in self._cells:
            cell = PretendedCell(Pod.of(pod), cells=self)
            self._cells[uid] = pod["metadata"]["name"], cell
            await cell.start()
        elif not runs and uid in self._cells:
            _, cell = self._cells.pop(uid)
            await cell.end()

    async def EndRun(  # noqa: N802
        self, request: cell_pb2.EndRunRequest, context: Context
    ) -> cell_pb2.EndRunResponse:
        cell_id = request.worker_id.rpartition("-")[0]
        cell = next((cell for name, cell in self._cells.values() if name == cell_id), None)
        if cell is None:
            raise NotFoundError(f"There is no {request.worker_id} here.", field="worker_id")
        await cell.end_run(request.worker_id, request.pid)
        return cell_pb2.EndRunResponse()


def _member(kind: str, member_id: str, *, endpoint: str, pid: int) -> Member:
    return Member(
        kind=kind, member_id=member_id, endpoint=endpoint, metrics_endpoint="", pid=pid, started_at_s=time.time()
    )


async def follow(client: httpx.AsyncClient, path: str) -> AsyncIterator[tuple[bool, dict[str, Any]]]:
    """Yields pods of cells as they are by now, and whether they are there."""
    listed = (await client.get(path, params=_CELLS)).raise_for_status().json()
    for pod in listed["items"]:
        yield True, pod
    parameters = _CELLS | {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
    async with client.stream("GET", path, params=parameters) as events:
        async for line in events.aiter_lines():
            event = json.loads(line)
            yield event["type"] != "DELETED", event["object"]


async def main(options: argparse.Namespace) -> None:
    config = json.loads(options.kubeconfig.read_text())
    [cluster], [user] = config["clusters"], config["users"]
    cells = Cells(Database.connect(options.redis_url, namespace=options.release))
    await cells.serve()
    async with httpx.AsyncClient(
        base_url=cluster["cluster"]["server"],
        headers={"authorization": f"Bearer {user['user']['token']}"},
        verify=False,
        timeout=None,
    ) as client:
        async for is_there, pod in follow(client, f"/api/v1/namespaces/{options.namespace}/pods"):
            await cells.hear(pod, is_there=is_there)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    for flag in ("--namespace", "--release", "--redis-url"):
        parser.add_argument(flag, required=True)
    logging.basicConfig()
    uvloop.run(main(parser.parse_args()))
