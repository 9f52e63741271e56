"""A worker's gRPC service with a tiny model, in this process, over a real socket."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from headway.core.cluster import Hardware
from headway.observe.tracing import Tracing
from headway.rpc.interceptors import CallInterceptor
from headway.v1 import worker_pb2, worker_pb2_grpc
from headway.worker.service import WorkerService
from headway.worker.servicer import WorkerServicer
from tests.checkpoints import make_checkpoint

NUM_BLOCKS = 64


@dataclass
class Bench:
    """A running service, a stub to it, and the states that it went through."""

    service: WorkerService
    stub: "worker_pb2_grpc.WorkerServiceAsyncStub"
    states: list[str]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("tiny"), "llama")


@pytest.fixture
async def unloaded() -> AsyncIterator[Bench]:
    states: list[str] = []
    service = WorkerService(
        "worker-0",
        hardware=Hardware(device="cpu", name="test", num_threads=1, memory_bytes=1 << 30),
        address="127.0.0.1",
        on_state=lambda state: states.append(state.state),
        on_crashed=lambda: states.append("crashed"),
        tracing=Tracing("worker", otlp_endpoint=None),
    )
    server = grpc.aio.server(interceptors=[CallInterceptor()])
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(WorkerServicer(service), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Bench(service, worker_pb2_grpc.WorkerServiceStub(channel), states)
    await service.stop()
    await server.stop(None)


@pytest.fixture
async def bench(unloaded: Bench, tiny: Path) -> Bench:
    order = worker_pb2.LoadModelRequest(
        plan_id="plan",
        model="tiny",
        directory=str(tiny),
        num_blocks=NUM_BLOCKS,
        block_size=16,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        max_model_len=512,
        enable_prefix_cache=True,
    )
    messages = [message async for message in unloaded.stub.LoadModel(order)]
    assert messages[-1].done
    assert [message.fraction for message in messages] == sorted(message.fraction for message in messages)
    return unloaded
