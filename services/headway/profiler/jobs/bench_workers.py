"""The workers that programs and hardware can be timed on."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from headway.core.cluster import Hardware
from headway.core.errors import HeadwayError, NotFoundError, UnavailableError
from headway.core.hardware.calibration import CalibrationAnswer, RankPlace
from headway.core.hardware.cell import Cell
from headway.core.program import Program
from headway.core.timing import Timing
from headway.profiler.machines import machine_of
from headway.profiler.worker import rpc_faults
from headway.rpc.convert import from_pb, to_pb
from headway.rpc.peers import Peers
from headway.store.membership import Member
from headway.v1 import common_pb2, worker_pb2, worker_pb2_grpc

_CALL_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchWorker:
    """A live worker on which programs can be timed."""

    worker_id: str
    endpoint: str
    hardware: Hardware

    @property
    def machine(self) -> str:
        return machine_of(self.endpoint)


class BenchWorkers:
    """Finds live workers; it asks each one once what it runs on."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._known: dict[tuple[str, str], BenchWorker] = {}

    async def workers(self) -> list[BenchWorker]:
        """Live workers that answer, the newest first."""
        await self._peers.refresh()
        members = self._peers.members("worker")
        for member in members:
            if (member.member_id, member.endpoint) not in self._known:
                try:
                    self._known[member.member_id, member.endpoint] = await self._describe(member)
                except HeadwayError:
                    continue  # it is starting, or ending: another look comes soon
        keys = [(member.member_id, member.endpoint) for member in members]
        self._known = {key: self._known[key] for key in keys if key in self._known}
        return list(self._known.values())

    async def hardware(self, worker_id: str) -> Hardware:
        """Hardware of the worker; of the newest one where the id is empty."""
        workers = await self.workers()
        for worker in workers:
            if worker_id in ("", worker.worker_id):
                return worker.hardware
        if worker_id:
            raise NotFoundError(
                f"No worker '{worker_id}' is running.", hint="`headway status` lists the workers.", field="worker_id"
            )
        raise UnavailableError("No worker is running.", hint="Try again when one is.", retry_after_s=1.0)

    async def wait(self, timeout_s: float) -> None:
        """Returns when workers came or went, or after `timeout_s`."""
        await self._peers.wait_for_change(timeout_s=timeout_s)

    async def time(
        self, worker: BenchWorker, programs: Sequence[Program], *, share: float
    ) -> AsyncGenerator[Timing, None]:
        """Times programs on a worker; yields a timing for each, in order.

        Raises:
            FailedPreconditionError: the worker has requests.
            UnavailableError: it is lost, or what times the programs died.
        """
        messages = [to_pb(program, common_pb2.Program) for program in programs]
        request = worker_pb2.MeasureProgramsRequest(programs=messages, share=share)
        async with self._peers.dial(worker.endpoint) as channel:
            stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
            with rpc_faults():
                async for timing in stub.MeasurePrograms(request, metadata=self._peers.metadata):
                    yield from_pb(timing, Timing)

    async def calibrate(
        self, worker: BenchWorker, cells: Sequence[Cell], *, share: float, place: RankPlace | None = None
    ) -> AsyncGenerator[CalibrationAnswer, None]:
        """Times cells on a worker. It yields the machine, then each cell's timing; at rank 0 of several the ranks'
        rendezvous comes first.

        Raises:
            FailedPreconditionError: the worker has requests.
            UnavailableError: it is lost, or what times the cells died.
        """
        request = worker_pb2.MeasureHardwareRequest(
            cells=[to_pb(cell, common_pb2.Cell) for cell in cells],
            share=share,
            place=None if place is None else to_pb(place, worker_pb2.RankPlace),
        )
        async with self._peers.dial(worker.endpoint) as channel:
            stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
            with rpc_faults():
                async for answer in stub.MeasureHardware(request, metadata=self._peers.metadata):
                    yield from_pb(answer, CalibrationAnswer)

    async def _describe(self, member: Member) -> BenchWorker:
        async with self._peers.dial(member.endpoint) as channel:
            stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
            with rpc_faults():
                request = worker_pb2.GetWorkerRequest()
                response = await stub.GetWorker(request, timeout=_CALL_TIMEOUT_S, metadata=self._peers.metadata)
        hardware = from_pb(response.hardware, Hardware)
        return BenchWorker(worker_id=member.member_id, endpoint=member.endpoint, hardware=hardware)
