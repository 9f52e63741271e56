"""The workers that the contract is held against: one for each engine, with one model, for all tests of a run."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from headway.core.engine_kind import EngineKind
from tests.checkpoints import make_checkpoint
from tests.engines.vllm_worker import vllm_worker
from tests.engines.worker import EngineWorker, load
from tests.worker.conftest import serving

ENGINES = tuple(EngineKind) if os.environ.get("HEADWAY_TEST_VLLM") else (EngineKind.HEADWAY,)
"""`make test-vllm` sets the variable: the others need no environment of their own."""
collect_ignore = [] if os.environ.get("HEADWAY_TEST_VLLM") else ["test_vllm_stack.py"]


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
    async with serving() as bench:
        await load(bench.stub, tiny)
        yield EngineWorker(request.param, bench.stub)
