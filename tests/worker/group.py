"""Real worker processes, and what a controller does with them to make a group."""

import asyncio
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import grpc

from headway.controller.launchers.forkserver.forkserver import Forkserver
from headway.controller.launchers.forkserver.order import Order
from headway.controller.process import module_command
from headway.core.errors import HeadwayError
from headway.rpc.status import error_from_rpc
from headway.store.membership import Member, Membership
from headway.store.redis import Database
from headway.v1 import common_pb2, worker_pb2, worker_pb2_grpc

COLLECTIVE_TIMEOUT_S = 60.0
"""So long that no rank is given up because the machine does much else."""
TIMEOUT_S = 50.0
"""What does not wait for that long does not wait for a collective that is never made."""
NUM_BLOCKS = 64

T = TypeVar("T")


@dataclass
class WorkerProcess:
    """A `headway.worker` that serves, and a stub to it."""

    name: str
    pid: int
    server: Forkserver
    stub: "worker_pb2_grpc.WorkerServiceAsyncStub"
    membership: Membership

    async def wait(self) -> int:
        """The exit status; fails where the process still lives after `TIMEOUT_S`."""
        ended = await until(lambda: asyncio.to_thread(self._status), lambda status: status is not None)
        assert ended is not None
        return ended

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def _status(self) -> int | None:
        return self.server.exit_status(self.pid)

    async def lease(self) -> Member | None:
        members = await self.membership.members("worker")
        return next((member for member in members if member.member_id == self.name), None)

    async def describe(self) -> worker_pb2.GetWorkerResponse:
        return await self.stub.GetWorker(worker_pb2.GetWorkerRequest())


Pair = tuple[WorkerProcess, WorkerProcess]


class WorkerProcesses:
    """Forked as a controller's are, when they are first asked for, and again when they have died."""

    def __init__(self, *, redis_url: str, directory: Path) -> None:
        self._redis_url = redis_url
        self.namespace = f"test-{uuid.uuid4().hex[:12]}"
        self._directory = directory
        self._server = Forkserver({})
        self._pids: dict[str, int] = {}

    @asynccontextmanager
    async def alive(self, *names: str) -> AsyncIterator[list[WorkerProcess]]:
        """Those of these names, once they serve."""
        for name in names:
            if name not in self._pids or self._server.exit_status(self._pids[name]) is not None:
                self._pids[name] = await asyncio.to_thread(self._server.fork, self._order(name))
        database = Database.connect(self._redis_url, namespace=self.namespace)
        membership = Membership(database)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(database.close)
            workers = []
            for name in names:
                pid = self._pids[name]
                endpoint = await _endpoint(membership, pid=pid)
                channel = await stack.enter_async_context(grpc.aio.insecure_channel(endpoint))
                stub = worker_pb2_grpc.WorkerServiceStub(channel)
                workers.append(WorkerProcess(name, pid, self._server, stub, membership))
            yield workers

    def kill(self) -> None:
        """Ends them all."""
        for pid in self._pids.values():
            if self._server.exit_status(pid) is None:
                os.kill(pid, signal.SIGKILL)

    def _order(self, name: str) -> Order:
        flags = {"member_id": name, "redis_url": self._redis_url, "namespace": self.namespace}
        return Order(
            preload=("headway.worker.__main__", "headway.worker.computed_loading"),
            command=module_command("worker", **flags),
            environment=dict(os.environ),
            log_path=str(self._directory / f"{name}.log"),
        )


async def _endpoint(membership: Membership, *, pid: int) -> str:
    """Of the worker, once it has registered."""

    async def find() -> str:
        members = await membership.members("worker")
        return next((member.endpoint for member in members if member.pid == pid), "")

    return await until(find, bool)


def order(directory: Path, model: str = "tiny") -> worker_pb2.LoadModelRequest:
    """For a lone worker."""
    return worker_pb2.LoadModelRequest(
        plan_id="plan",
        model=model,
        directory=str(directory),
        num_blocks=NUM_BLOCKS,
        block_size=16,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        max_model_len=512,
        enable_prefix_cache=True,
    )


async def load(worker: WorkerProcess, request: worker_pb2.LoadModelRequest) -> list[worker_pb2.LoadModelResponse]:
    return [message async for message in worker.stub.LoadModel(request)]


def of_group(
    workers: Sequence[WorkerProcess],
    *requests: worker_pb2.LoadModelRequest,
    pp: int = 1,
    cp: int = 1,
    collective_timeout_s: float = COLLECTIVE_TIMEOUT_S,
) -> None:
    """Adds to requests, by rank, what makes a group of them, of `pp` stages and `cp` shards; but for the rendezvous."""
    tp = len(workers) // (pp * cp)
    for rank, request in enumerate(requests):
        request.parallel.CopyFrom(common_pb2.ParallelConfig(tp=tp, pp=pp, cp=cp, cp_ffn="data"))
        request.rank = rank
        request.worker_ids.extend(worker.name for worker in workers)
        request.group_id = "group-7"
        request.collective_timeout_s = collective_timeout_s


async def load_group(
    workers: Sequence[WorkerProcess],
    *requests: worker_pb2.LoadModelRequest,
    pp: int = 1,
    cp: int = 1,
    collective_timeout_s: float = COLLECTIVE_TIMEOUT_S,
) -> list[object]:
    """Loads the leader, then the others where it says; what each call brought, an error included."""
    of_group(workers, *requests, pp=pp, cp=cp, collective_timeout_s=collective_timeout_s)
    leading = aiter(workers[0].stub.LoadModel(requests[0]))
    first = await anext(leading)
    assert first.rendezvous

    async def rest() -> list[worker_pb2.LoadModelResponse]:
        return [first] + [message async for message in leading]

    for request in requests[1:]:
        request.rendezvous = first.rendezvous
    following = [load(worker, request) for worker, request in zip(workers[1:], requests[1:], strict=True)]
    return await asyncio.gather(rest(), *following, return_exceptions=True)


def submit(request_id: str, *, max_tokens: int = 8, model: str = "tiny") -> worker_pb2.GenerateTokensRequest:
    sampling = common_pb2.SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    return worker_pb2.GenerateTokensRequest(
        submit=worker_pb2.SubmitSequence(
            request_id=request_id, model=model, prompt_token_ids=range(5, 45), sampling=sampling
        )
    )


async def outputs_of(
    worker: WorkerProcess, *requests: worker_pb2.GenerateTokensRequest
) -> list[worker_pb2.SequenceOutput]:
    """Sends the requests, half-closes, and collects all outputs."""

    async def send() -> AsyncIterator[worker_pb2.GenerateTokensRequest]:
        for request in requests:
            yield request

    return [output async for message in worker.stub.GenerateTokens(send()) for output in message.outputs]


async def tokens_of(worker: WorkerProcess, *, max_tokens: int = 24, model: str = "tiny") -> list[int]:
    outputs = await outputs_of(worker, submit("r", max_tokens=max_tokens, model=model))
    assert not any(output.HasField("error") for output in outputs), outputs
    return [token for output in outputs for token in output.token_ids]


def error_of(answer: object) -> HeadwayError:
    """What a call raised."""
    assert isinstance(answer, grpc.aio.AioRpcError), answer
    return error_from_rpc(answer)


async def until(ask: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    """The first answer for which `holds`; fails with the last one after `TIMEOUT_S`."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not holds(answer := await ask()):
        assert time.monotonic() < deadline_s, f"still {answer} after {TIMEOUT_S} s"
        await asyncio.sleep(0.02)
    return answer
