"""A worker whose steps take exactly as long as a law says, behind a real gRPC server, registered in a real Redis."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from headway.core.catalogue import built_in_catalogue
from headway.core.cluster import Hardware
from headway.core.errors import FailedPreconditionError
from headway.core.latency import LatencyModel
from headway.core.model import ModelSpec, RopeSpec
from headway.core.parallel_config import SINGLE
from headway.core.profile import Profile
from headway.profiler.captures import Captures
from headway.profiler.hardware.service import HardwareService
from headway.profiler.imports import ImportedProfiles
from headway.profiler.jobs.bench_workers import BenchWorkers
from headway.profiler.jobs.jobs import MeasuringJobs
from headway.profiler.jobs.store import JobStore
from headway.profiler.machines import Machines
from headway.profiler.profile_store import ProfileStore
from headway.profiler.service import ProfilerService
from headway.profiler.servicer import ProfilerServicer
from headway.rpc.convert import to_pb
from headway.rpc.interceptors import CallInterceptor, Context
from headway.rpc.peers import Peers
from headway.rpc.tasks import end_tasks
from headway.store.documents import Documents
from headway.store.hardware import HardwareTimings
from headway.store.membership import Member, Membership
from headway.store.redis import Database
from headway.store.schema import PROFILE
from headway.v1 import common_pb2, profiler_pb2_grpc, worker_pb2, worker_pb2_grpc
from tests.specs import llama_spec

LAW = LatencyModel(
    base_s=4e-3, per_prefill_token_s=2e-4, per_prefill_pair_s=3e-8, per_decode_s=5e-4, per_context_token_s=2e-7
)


class ScriptedWorker(worker_pb2_grpc.WorkerServiceServicer):
    """Answers measurements by `law`; the first `num_busy` of them find it serving."""

    def __init__(self, worker_id: str = "worker-0") -> None:
        self.worker_id = worker_id
        self.hardware = Hardware(
            device="cpu", name="Test CPU", num_threads=2, memory_bytes=2**33, software={"torch": "1"}
        )
        self.parallel = SINGLE
        self.model = "llama"
        self.plan_id = "plan-1"
        self.law: Callable[[worker_pb2.MeasureStepRequest], float] = step_by_law
        self.num_busy = 0
        self.wait_s = 0.0  # until a measurement is answered
        self.program_s = 0.001  # that it measures each for
        self.asked: list[tuple[int, int, int]] = []
        self.on_measure: Callable[[], None] = lambda: None
        self.places: list[tuple[int, int, str]] = []  # among ranks that time collectives
        self.timed: list[str] = []  # programs, by their first instruction
        self.timing: Callable[[worker_pb2.MeasureProgramsResponse], None] = lambda response: None
        self.on_time: Callable[[], None] = lambda: None
        self.server: grpc.aio.Server | None = None

    async def GetWorker(  # noqa: N802 - the method's name in the protocol
        self, request: worker_pb2.GetWorkerRequest, context: Context
    ) -> worker_pb2.GetWorkerResponse:
        return worker_pb2.GetWorkerResponse(
            worker_id=self.worker_id,
            hardware=to_pb(self.hardware, common_pb2.Hardware),
            state="ready",
            parallel=to_pb(self.parallel, common_pb2.ParallelConfig),
            replicas=[worker_pb2.LoadedReplica(model=self.model, plan_id=self.plan_id)] if self.model else [],
        )

    async def WatchLoad(  # noqa: N802
        self, request: worker_pb2.WatchLoadRequest, context: Context
    ) -> AsyncIterator[worker_pb2.WatchLoadResponse]:
        yield worker_pb2.WatchLoadResponse(
            model=self.model,
            num_blocks=1024,
            max_num_seqs=32,
            max_num_batched_tokens=256,
            max_model_len=1024,
            block_size=16,
        )
        await asyncio.sleep(60)

    async def MeasureStep(  # noqa: N802
        self, request: worker_pb2.MeasureStepRequest, context: Context
    ) -> worker_pb2.MeasureStepResponse:
        if self.num_busy > 0:
            self.num_busy -= 1
            raise FailedPreconditionError("The worker is serving requests.")
        self.asked.append((request.prefill_tokens, request.num_decodes, request.context_tokens))
        self.on_measure()
        await asyncio.sleep(self.wait_s)
        return worker_pb2.MeasureStepResponse(step_s=self.law(request))

    async def MeasurePrograms(  # noqa: N802
        self, request: worker_pb2.MeasureProgramsRequest, context: Context
    ) -> AsyncIterator[worker_pb2.MeasureProgramsResponse]:
        for number, program in enumerate(request.programs):
            if self.num_busy > 0:
                self.num_busy -= 1
                raise FailedPreconditionError("The worker is serving requests.")
            self.on_time()
            await asyncio.sleep(self.program_s)
            self.timed.append(program.instructions[0].target)
            response = worker_pb2.MeasureProgramsResponse(
                number=number, seconds=1e-3 * len(program.instructions), relative_error=0.01, num_repeats=5
            )
            self.timing(response)
            yield response

    async def MeasureHardware(  # noqa: N802
        self, request: worker_pb2.MeasureHardwareRequest, context: Context
    ) -> AsyncIterator[worker_pb2.MeasureHardwareResponse]:
        if self.num_busy > 0:
            self.num_busy -= 1
            raise FailedPreconditionError("The worker is serving requests.")
        machine = common_pb2.Machine(
            hardware=to_pb(self.hardware, common_pb2.Hardware), machine="here", cache_bytes=1024, num_cores=2
        )
        yield worker_pb2.MeasureHardwareResponse(machine=machine)
        if request.HasField("place"):
            place = request.place
            self.places.append((place.rank, place.num_ranks, place.rendezvous))
            yield worker_pb2.MeasureHardwareResponse(rendezvous="here")
        for cell in request.cells:
            timing = common_pb2.CellTiming(cell=cell, seconds=1e-4 + cell.extents[-1] * 1e-9)
            yield worker_pb2.MeasureHardwareResponse(timing=timing)


def step_by_law(request: worker_pb2.MeasureStepRequest) -> float:
    return LAW.step_s(
        prefill_tokens=request.prefill_tokens,
        prefill_context=request.context_tokens,
        num_decodes=request.num_decodes,
        context_tokens=request.num_decodes * request.context_tokens,
    )


@asynccontextmanager
async def serving(worker: ScriptedWorker, database: Database) -> AsyncIterator[None]:
    worker.server = server = grpc.aio.server(interceptors=[CallInterceptor()])
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    member = Member(
        kind="worker",
        member_id=worker.worker_id,
        endpoint=f"127.0.0.1:{port}",
        metrics_endpoint="",
        pid=1,
        started_at_s=time.time(),
        models=(worker.model,) if worker.model else (),
    )
    membership = Membership(database)
    await membership.enter(member)

    async def keep() -> None:
        while True:
            await asyncio.sleep(1)
            await membership.enter(member)

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        await end_tasks([keeping])
        await server.stop(None)


@pytest.fixture(scope="session")
def law() -> LatencyModel:
    return LAW


@pytest.fixture(scope="session")
def spec() -> ModelSpec:
    return llama_spec(vocab_size=1000, rope=RopeSpec(theta=1e4, rotary_dim=16))


@pytest.fixture
async def worker(database: Database) -> AsyncIterator[ScriptedWorker]:
    worker = ScriptedWorker()
    async with serving(worker, database):
        yield worker


@pytest.fixture
async def endpoint(service: ProfilerService, database: Database) -> AsyncIterator[str]:
    """Of the profiler's gRPC service."""
    async with Peers(Membership(database)).watching() as peers:
        bench_workers, machines, catalogue = BenchWorkers(peers), Machines(), built_in_catalogue()
        jobs = MeasuringJobs(bench_workers, machines, JobStore(database), catalogue=catalogue)
        servicer = ProfilerServicer(
            service,
            imported=ImportedProfiles(database, catalogue=catalogue),
            captures=Captures(),
            jobs=jobs,
            profile_store=ProfileStore(database, bench_workers),
            hardware=HardwareService(bench_workers, machines, HardwareTimings(database)),
        )
        server = grpc.aio.server(interceptors=[CallInterceptor()])
        profiler_pb2_grpc.add_ProfilerServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        yield f"127.0.0.1:{port}"
        await jobs.stop()
        await server.stop(None)


@pytest.fixture
async def stub(endpoint: str) -> AsyncIterator[Any]:
    """Of the profiler's gRPC service."""
    async with grpc.aio.insecure_channel(endpoint) as channel:
        yield profiler_pb2_grpc.ProfilerServiceStub(channel)


@pytest.fixture
def profiles(database: Database) -> Documents[Profile]:
    return Documents(database, PROFILE, Profile)


@pytest.fixture
async def service(
    database: Database, worker: ScriptedWorker, profiles: Documents[Profile]
) -> AsyncIterator[ProfilerService]:
    async with Peers(Membership(database)).watching() as peers:
        yield ProfilerService(peers, profiles, machines=Machines(), patience_s=2.0)
