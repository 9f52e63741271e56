"""The worker under measurement, called over gRPC."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import grpc

from headway.core.cluster import Hardware
from headway.core.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, UnavailableError
from headway.core.load import LoadReport
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.profiler.grid import Point, WorkerLimits
from headway.profiler.machines import machine_of
from headway.rpc.convert import from_pb
from headway.rpc.convert.load import loads_from_pb
from headway.rpc.peers import Peers
from headway.rpc.status import error_from_rpc
from headway.v1 import worker_pb2, worker_pb2_grpc

_CALL_TIMEOUT_S = 5.0
_STEP_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedWorker:
    """The model and the group of a worker; equal descriptions mean that nothing was loaded in between."""

    hardware: Hardware
    parallel: ParallelConfig
    model: str
    plan_id: str
    backend: str = ""


class Worker:
    """Calls to one worker about one of its models; '' is its only one. They raise UnavailableError when the worker is
    lost."""

    def __init__(self, channel: grpc.aio.Channel, *, peers: Peers, endpoint: str, model: str = "") -> None:
        self.machine = machine_of(endpoint)
        self._stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
        self._metadata = peers.metadata
        self._model = model

    async def describe(self) -> LoadedWorker:
        """What the worker has loaded; FailedPreconditionError where no model is loaded."""
        request = worker_pb2.GetWorkerRequest()
        with rpc_faults():
            response = await self._stub.GetWorker(request, timeout=_CALL_TIMEOUT_S, metadata=self._metadata)
        replica = next((each for each in response.replicas if self._model in ("", each.model)), None)
        if replica is None:
            missing = f"'{self._model}' not" if self._model else "no model"
            raise FailedPreconditionError(
                f"Worker {response.worker_id} has {missing} loaded.",
                hint="Profile it when it is ready.",
                field="worker_id",
            )
        if not self._model and len(response.replicas) > 1:
            names = ", ".join(each.model for each in response.replicas)
            raise InvalidArgumentError(
                f"Worker {response.worker_id} serves several models.", hint=f"Name one of {names}.", field="model"
            )
        hardware = from_pb(response.hardware, Hardware)
        parallel = from_pb(response.parallel, ParallelConfig) if response.HasField("parallel") else SINGLE
        return LoadedWorker(
            hardware=hardware,
            parallel=parallel,
            model=replica.model,
            plan_id=replica.plan_id,
            backend=replica.backend,
        )

    async def limits(self) -> WorkerLimits:
        request = worker_pb2.WatchLoadRequest(interval_ms=1000)
        with rpc_faults():
            reports = self._stub.WatchLoad(request, timeout=_CALL_TIMEOUT_S, metadata=self._metadata)
            async for message in reports:
                found = (each for each in loads_from_pb(message) if self._model in ("", each.model))
                report = next(found, LoadReport())
                return WorkerLimits(
                    max_num_seqs=report.max_num_seqs,
                    max_num_batched_tokens=report.max_num_batched_tokens,
                    max_model_len=report.max_model_len,
                    num_blocks=report.num_blocks,
                    block_size=report.block_size,
                )
        raise UnavailableError("The worker ended its load reports before the first.", hint="Try again in a moment.")

    async def measure(self, point: Point) -> float:
        """Times one step, in seconds; FailedPreconditionError while requests are running."""
        request = worker_pb2.MeasureStepRequest(
            prefill_tokens=point.prefill_tokens,
            num_decodes=point.num_decodes,
            context_tokens=point.context_tokens,
            model=self._model,
        )
        with rpc_faults():
            response = await self._stub.MeasureStep(request, timeout=_STEP_TIMEOUT_S, metadata=self._metadata)
        return response.step_s


@asynccontextmanager
async def dial_worker(peers: Peers, worker_id: str, *, model: str = "") -> AsyncIterator[Worker]:
    """Connects to a worker; NotFoundError where no such worker is alive."""
    endpoint = next((member.endpoint for member in peers.members("worker") if member.member_id == worker_id), None)
    if endpoint is None:
        raise NotFoundError(
            f"No worker '{worker_id}' is running.", hint="`headway status` lists the workers.", field="worker_id"
        )
    async with peers.dial(endpoint) as channel:
        yield Worker(channel, peers=peers, endpoint=endpoint, model=model)


@contextmanager
def rpc_faults() -> Iterator[None]:
    """Raises gRPC errors of a call to a worker as HeadwayError."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.CANCELLED:  # not by us: that would be asyncio's
            raise UnavailableError("The worker went away.", hint="It is being restarted; try again.") from None
        raise error_from_rpc(error) from None
