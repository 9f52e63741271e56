"""Plans and processes that the controller's tests share."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.controller.process import ProcessSpec
from headway.core.cluster import Hardware, PlanWorker
from headway.core.latency import LatencyModel
from headway.core.model import Family, ModelSpec
from headway.core.plan import Assignment, ModelDeployment, Prediction, ServingPlan

SCRIPT = Path(__file__).parent / "scripted.py"

_LATENCY = LatencyModel(
    base_s=1e-3, per_prefill_token_s=1e-4, per_prefill_pair_s=0.0, per_decode_s=1e-4, per_context_token_s=0.0
)
_PREDICTION = Prediction(ttft_s=0.1, tpot_s=0.01, tpot_loaded_s=0.02, output_tokens_per_s=100.0, latency=_LATENCY)


@pytest.fixture(scope="session")
def make_model() -> Callable[..., ModelDeployment]:
    def make(name: str, **changes: Any) -> ModelDeployment:
        spec = ModelSpec(
            family=Family.LLAMA,
            architecture="LlamaForCausalLM",
            vocab_size=1000,
            hidden_size=64,
            num_layers=2,
            num_heads=4,
            num_kv_heads=2,
            head_dim=16,
            intermediate_size=128,
            max_position=1024,
            dtype="float32",
            activation="silu",
            norm_eps=1e-5,
        )
        return ModelDeployment(**({"name": name, "directory": f"/models/{name}", "spec": spec} | changes))

    return make


@pytest.fixture(scope="session")
def make_plan(make_model: Callable[..., ModelDeployment]) -> Callable[..., ServingPlan]:
    """A plan by hand: `{"worker-0": "llama"}`, or `("llama", 200)` for a number of blocks."""

    def make(models: dict[str, str | tuple[str, int]], *, plan_id: str = "plan-1") -> ServingPlan:
        work = {worker: model if isinstance(model, tuple) else (model, 100) for worker, model in models.items()}
        hardware = Hardware(device="cpu", name="Test CPU", num_threads=1, memory_bytes=2**33)
        return ServingPlan(
            plan_id=plan_id,
            created_at_s=1.0,
            models=tuple(make_model(name) for name in sorted({name for name, _ in work.values()})),
            workers=tuple(PlanWorker(worker_id=worker, hardware=hardware) for worker in work),
            assignments=tuple(
                Assignment(
                    group_id=worker.replace("worker", "group"),
                    worker_id=worker,
                    model=name,
                    weight_bytes=2**20,
                    kv_cache_bytes=2**20,
                    reserved_bytes=0,
                    num_blocks=num_blocks,
                    block_size=16,
                    max_num_seqs=8,
                    max_num_batched_tokens=64,
                    max_model_len=256,
                    enable_prefix_cache=True,
                    prediction=_PREDICTION,
                )
                for worker, (name, num_blocks) in work.items()
            ),
        )

    return make


@pytest.fixture(scope="session")
def make_spec() -> Callable[..., ProcessSpec]:
    """A process that runs a line of Python: quick to start, with nothing of ours in it."""

    def make(name: str, code: str = "import time; time.sleep(600)", **changes: Any) -> ProcessSpec:
        return ProcessSpec(name=name, command=(sys.executable, "-S", "-c", code), **({"kind": name} | changes))

    return make


@pytest.fixture
def process_of(redis_url: str, namespace: str) -> Callable[..., ProcessSpec]:
    """A worker of `scripted.py`, or one of Headway's own services."""

    def make(name: str, *, kind: str) -> ProcessSpec:
        program = (str(SCRIPT),) if kind == "worker" else ("-m", f"headway.{kind}")
        return ProcessSpec(
            name=name,
            kind=kind,
            command=(sys.executable, *program, "--namespace", namespace, "--member-id", name),
            environment={"HEADWAY_REDIS_URL": redis_url, "OMP_NUM_THREADS": "1"},
        )

    return make


@pytest.fixture(scope="session")
def until() -> Callable[..., Awaitable[None]]:
    """Waits until a condition holds; fails with what was waited for."""

    async def wait(condition: Callable[[], object], *, what: str, timeout_s: float = 20.0) -> float:
        started_s = time.monotonic()
        while True:
            result = condition()
            if asyncio.iscoroutine(result):
                result = await result
            waited_s = time.monotonic() - started_s
            if result:
                return waited_s
            assert waited_s < timeout_s, f"waited in vain for {what}"
            await asyncio.sleep(0.02)

    return wait


@pytest.fixture
def spawned() -> Iterator[list[int]]:
    """Pids to be killed when the test ends, however it ends."""
    import os
    import signal
    from contextlib import suppress

    pids: list[int] = []
    yield pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
