"""A worker's gRPC service with a tiny model, in this process, over a real socket."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from headway.core.cluster import Hardware
from headway.core.line import QueuePolicy
from headway.observe.tracing import Tracing
from headway.rpc.interceptors import CallInterceptor
from headway.rpc.peers import Peers
from headway.store.membership import Membership
from headway.store.redis import Database
from headway.v1 import worker_pb2, worker_pb2_grpc
from headway.worker.computed_loading import ComputedLoader
from headway.worker.service import WorkerService
from headway.worker.servicer import WorkerServicer
from headway.worker.transfer.client import PeerWorkerClient
from tests.checkpoints import make_checkpoint
from tests.worker.group import Pair, WorkerProcesses

NUM_BLOCKS = 64
HARDWARE = Hardware(device="cpu", name="test", num_threads=1, memory_bytes=1 << 30)


@dataclass
class Bench:
    """A running service, a stub to it, the states that it went through, and where it is."""

    service: WorkerService
    stub: "worker_pb2_grpc.WorkerServiceAsyncStub"
    states: list[str]
    endpoint: str


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("tiny"), "llama")


@pytest.fixture(scope="module")
def processes(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcesses]:
    processes = WorkerProcesses(redis_url=redis_url, directory=tmp_path_factory.mktemp("logs"))
    yield processes
    processes.kill()


@pytest.fixture
async def pair(processes: WorkerProcesses) -> AsyncIterator[Pair]:
    """Two worker processes, with whatever the test before has left in them."""
    async with processes.alive("worker-0", "worker-1") as (leader, follower):
        yield leader, follower


@asynccontextmanager
async def serving(
    worker_id: str = "worker-0",
    *,
    queue_policy: QueuePolicy = QueuePolicy.FCFS,
    hardware: Hardware = HARDWARE,
    engine_events: str = "",
) -> AsyncIterator[Bench]:
    """A worker without a model."""
    states: list[str] = []
    endpoint = ""
    database = Database.connect("redis://127.0.0.1:1", namespace="nobody")  # lazy: nobody asks it anything
    service = WorkerService(
        worker_id,
        hardware=hardware,
        address="127.0.0.1",
        workers=PeerWorkerClient(Peers(Membership(database)), own_endpoint=lambda: endpoint),
        on_state=lambda state: states.append(state.state),
        on_crashed=lambda: states.append("crashed"),
        tracing=Tracing("worker", otlp_endpoint=None),
        queue_policy=queue_policy,
        engine_events=engine_events,
    )
    server = grpc.aio.server(interceptors=[CallInterceptor()])
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(WorkerServicer(service), server)
    endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    async with grpc.aio.insecure_channel(endpoint) as channel:
        yield Bench(service, worker_pb2_grpc.WorkerServiceStub(channel), states, endpoint)
    if not service.is_stopped:
        await service.stop()
    await server.stop(None)


async def load(bench: Bench, directory: Path, **fields: Any) -> Bench:
    """The worker, with the model loaded."""
    order: dict[str, Any] = {
        "plan_id": "plan",
        "model": "tiny",
        "directory": str(directory),
        "num_blocks": NUM_BLOCKS,
        "block_size": 16,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "max_model_len": 512,
        "enable_prefix_cache": True,
    }
    messages = [message async for message in bench.stub.LoadModel(worker_pb2.LoadModelRequest(**order | fields))]
    assert messages[-1].done
    assert [message.fraction for message in messages] == sorted(message.fraction for message in messages)
    return bench


@pytest.fixture
def overlapped_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers take the CPU for a device whose work they need not wait for."""
    monkeypatch.setattr(ComputedLoader, "_is_asynchronous", lambda *_: True)
    monkeypatch.setattr(ComputedLoader, "_capture", lambda *_: None)


@pytest.fixture
async def unloaded() -> AsyncIterator[Bench]:
    async with serving() as bench:
        yield bench


@pytest.fixture
async def bench(unloaded: Bench, tiny: Path) -> Bench:
    return await load(unloaded, tiny)
