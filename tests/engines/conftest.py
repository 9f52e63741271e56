"""The workers that the contract is held against: one for each engine, with one model, for all tests of a run."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from headway.core.engine_kind import EngineKind
from headway.v1 import worker_pb2_grpc
from headway.worker.hardware import server_hardware
from headway.worker.vllm_server.server import describe_server
from tests.checkpoints import make_checkpoint
from tests.engines.token_server import TokenServer, token_server
from tests.engines.vllm_server import vllm_server
from tests.engines.vllm_worker import vllm_worker
from tests.engines.worker import EngineWorker, load
from tests.worker.conftest import serving

HAS_VLLM = bool(os.environ.get("HEADWAY_TEST_VLLM"))
"""`make test-vllm` sets the variable: vLLM needs an environment of its own. Without, what takes the place of its server
speaks as it does."""
ENGINES = tuple(EngineKind) if HAS_VLLM else (EngineKind.HEADWAY, EngineKind.VLLM_SERVER)
collect_ignore = [] if HAS_VLLM else ["test_vllm_devices.py", "test_vllm_loading.py", "test_vllm_stack.py"]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama whose heads are as wide as vLLM's kernels need them."""
    return make_checkpoint(tmp_path_factory.mktemp("tiny"), "llama", head_dim=32, max_position_embeddings=1024)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ENGINES)
async def engine(
    request: pytest.FixtureRequest, tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[EngineWorker]:
    if request.param is EngineKind.VLLM:
        async with vllm_worker(tmp_path_factory.mktemp("vllm")) as stub:
            await load(stub, tiny, engine="vllm", engine_args="--enforce-eager --enable-lora --max-lora-rank 8")
            yield EngineWorker(request.param, stub)
        return
    if request.param is EngineKind.VLLM_SERVER:
        async with (
            vllm_server(tiny, tmp_path_factory.mktemp("server")) if HAS_VLLM else own_server(tiny) as (url, events),
            standing_in_for(url, events=events) as stub,
        ):
            await load(stub, tiny, engine="vllm-server")
            yield EngineWorker(request.param, stub)
        return
    async with serving() as bench:
        await load(bench.stub, tiny)
        yield EngineWorker(request.param, bench.stub)


@asynccontextmanager
async def own_server(tiny: Path) -> AsyncIterator[tuple[str, str]]:
    async with (
        serving("worker-9") as bench,
        token_server(TokenServer(EngineWorker(EngineKind.HEADWAY, bench.stub), "inner")) as server,
    ):
        await load(bench.stub, tiny, model="inner")
        yield server.url, ""


@asynccontextmanager
async def standing_in_for(url: str, *, events: str) -> AsyncIterator["worker_pb2_grpc.WorkerServiceAsyncStub"]:
    """A worker for the server there, which reads the events of its cache where it publishes any."""
    described = await describe_server(url, model="tiny", events=events)
    hardware = server_hardware(described.served, version=described.version)
    async with serving(hardware=hardware, engine_events=events) as bench:
        yield bench.stub
