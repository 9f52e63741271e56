"""Plans and processes that the controller's tests share."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from headway.controller.process import ProcessRecord, ProcessSpec
from headway.core.cluster import Hardware, PlanWorker
from headway.core.deployment import Deployment, WorkerOptions
from headway.core.hardware.profile import LinkProfile
from headway.core.latency import LatencyModel
from headway.core.parallel_config import ParallelConfig
from headway.core.plan.serving import Assignment, ModelDeployment, Prediction, RankShare, ServingPlan
from headway.core.profile import Profile
from headway.core.stage_profile import StageProfile
from headway.planner.jobs.jobs import SearchJobs
from headway.planner.jobs.store import SearchStore
from headway.planner.placing import PlacementService
from headway.planner.service import PlannerService
from headway.planner.servicer import PlannerServicer
from headway.rpc.interceptors import CallInterceptor
from headway.rpc.peers import Peers
from headway.store.documents import Documents
from headway.store.membership import Member, Membership
from headway.store.redis import Database
from headway.store.schema import HARDWARE_LINKS, PROCESS, PROFILE, STAGE_PROFILE
from headway.v1 import planner_pb2_grpc, worker_pb2_grpc
from tests.controller.scripted import ScriptedWorker
from tests.controller.stack import OWN_MEMBER, Control, Serve, Stack
from tests.specs import llama_spec

SCRIPT = Path(__file__).parent / "scripted.py"

_LATENCY = LatencyModel(
    base_s=1e-3, per_prefill_token_s=1e-4, per_prefill_pair_s=0.0, per_decode_s=1e-4, per_context_token_s=0.0
)
_PREDICTION = Prediction(ttft_s=0.1, tpot_s=0.01, tpot_loaded_s=0.02, output_tokens_per_s=100.0, latency=_LATENCY)


@pytest.fixture(scope="session")
def make_model() -> Callable[..., ModelDeployment]:
    def make(name: str, **changes: Any) -> ModelDeployment:
        spec = llama_spec(vocab_size=1000)
        return ModelDeployment(**({"name": name, "directory": f"/models/{name}", "spec": spec} | changes))

    return make


@pytest.fixture(scope="session")
def make_plan(make_model: Callable[..., ModelDeployment]) -> Callable[..., ServingPlan]:
    """A plan by hand: `{"worker-0": "llama"}`, `("llama", 200)` for a number of blocks, "worker-0,worker-1" for a
    group of two."""

    def make(models: dict[str, str | tuple[str, int]], *, plan_id: str = "plan-1") -> ServingPlan:
        work = {worker: model if isinstance(model, tuple) else (model, 100) for worker, model in models.items()}
        hardware = Hardware(device="cpu", name="Test CPU", num_threads=1, memory_bytes=2**33)
        return ServingPlan(
            plan_id=plan_id,
            created_at_s=1.0,
            models=tuple(make_model(name) for name in sorted({name for name, _ in work.values()})),
            workers=tuple(
                PlanWorker(worker_id=worker, hardware=hardware) for group in work for worker in group.split(",")
            ),
            assignments=tuple(
                Assignment(
                    group_id=leader.replace("worker", "group"),
                    worker_id=leader,
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
                    parallel=ParallelConfig(tp=1 + len(others)),
                    ranks=tuple(
                        RankShare(worker_id=worker, weight_bytes=2**19, kv_cache_bytes=2**19, reserved_bytes=0)
                        for worker in ((leader, *others) if others else ())
                    ),
                )
                for (leader, *others), (name, num_blocks) in ((g.split(","), w) for g, w in work.items())
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

    async def wait(condition: Callable[[], object], *, what: str, timeout_s: float = 60.0) -> float:
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


@pytest.fixture
async def controlling(database: Database, tmp_path: Path, spawned: list[int]) -> AsyncIterator[Control]:
    membership = Membership(database)

    @asynccontextmanager
    async def control(deployment: Deployment, specs: list[ProcessSpec]) -> AsyncIterator[Stack]:
        async with Peers(membership).watching() as peers:
            stack = Stack(database, peers, deployment, specs, tmp_path / "logs")
            service = stack.service
            await service.start()
            loops = (service.supervise_forever(), service.reconcile_forever(), service.profile_forever())
            tasks = [asyncio.create_task(loop) for loop in loops]
            yield stack
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks)
            await stack.service.close()

    yield control
    spawned.extend(record.pid for record in await Documents(database, PROCESS, ProcessRecord).all())


@pytest.fixture
async def serve(database: Database) -> AsyncIterator[Serve]:
    """Starts a gRPC server in this process and registers it; returns a function that renews its lease."""
    async with AsyncExitStack() as stack:

        async def start(kind: str, member_id: str, add: Callable[[grpc.aio.Server], None]) -> Callable[..., Any]:
            server = grpc.aio.server(interceptors=[CallInterceptor()])
            add(server)
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            stack.push_async_callback(server.stop, None)
            member = replace(OWN_MEMBER, kind=kind, member_id=member_id, endpoint=f"127.0.0.1:{port}")
            keeper = asyncio.create_task(keep_lease(lambda: member))
            stack.callback(keeper.cancel)

            async def renew(state: str, model: str) -> None:
                nonlocal member
                member = replace(member, state=state, models=(model,) if model else ())
                await Membership(database).enter(member)

            await renew("ready", "")
            return renew

        async def keep_lease(member: Callable[[], Member]) -> None:
            while True:
                await asyncio.sleep(1.0)
                await Membership(database).enter(member())

        yield start


@pytest.fixture
async def planner(serve: Serve, database: Database) -> AsyncIterator[None]:
    """A planner in this process."""
    link_profiles = Documents(database, HARDWARE_LINKS, LinkProfile)
    service = PlannerService(
        Documents(database, PROFILE, Profile),
        stage_profiles=Documents(database, STAGE_PROFILE, StageProfile),
        link_profiles=link_profiles,
    )
    add = planner_pb2_grpc.add_PlannerServiceServicer_to_server
    jobs = SearchJobs(SearchStore.in_redis(database))
    servicer = PlannerServicer(service, placements=PlacementService(link_profiles), jobs=jobs)
    await serve("planner", "planner", lambda server: add(servicer, server))
    yield
    await jobs.close()


@pytest.fixture
async def worker(serve: Serve, database: Database) -> ScriptedWorker:
    """A worker in this process, named worker-0."""

    async def renew(state: str, model: str) -> None:
        await renew_lease(state, model)

    worker = ScriptedWorker("worker-0", database, on_state=renew)
    add = worker_pb2_grpc.add_WorkerServiceServicer_to_server
    renew_lease = await serve("worker", "worker-0", lambda server: add(worker, server))
    return worker


@pytest.fixture
def deployment(make_model: Any) -> Deployment:
    return Deployment(models=(make_model("llama"),), workers=WorkerOptions(count=1), profile=False)
