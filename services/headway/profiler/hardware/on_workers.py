"""Times cells beside the workers of the stack, while these are idle."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from itertools import chain, groupby, zip_longest

from headway.core.cluster import Hardware
from headway.core.errors import DeadlineExceededError, FailedPreconditionError, InternalError, UnavailableError
from headway.core.hardware.cell import Cell, CellTiming
from headway.core.hardware.family import COLLECTIVES, Transport
from headway.core.hardware.profile import Machine
from headway.profiler.hardware.own import ranks_of_one
from headway.profiler.hardware.together import time_together
from headway.profiler.jobs.bench_workers import BenchWorker, BenchWorkers
from headway.profiler.machines import Machines

_BATCH = 256
_MAX_ATTEMPTS = 3
_RETRY_S = 1.0


class WorkersCalibrator:
    """Implements `headway.profiler.hardware.hardware.Calibrator` for the workers of one kind of hardware.

    Where there are several, each rank of a collective runs beside a worker of its own, so that what lies between
    workers is timed. Where there is one, all run beside it.

    Args:
        share: part of the time of a worker with a model loaded that measuring may take, in (0, 1].
    """

    def __init__(self, bench_workers: BenchWorkers, machines: Machines, *, hardware: Hardware, share: float) -> None:
        self._bench_workers = bench_workers
        self._machines = machines
        self._hardware = hardware
        self._share = share
        self._are_several = False
        self._turn = 0

    async def machine(self) -> Machine:
        """The machine of a worker. FailedPreconditionError while the worker is busy; UnavailableError where none
        answers."""
        for worker in await self._workers():
            async with aclosing(self._bench_workers.calibrate(worker, [], share=1.0)) as answers:
                async for answer in answers:
                    if answer.machine is not None:
                        return answer.machine
        raise UnavailableError(f"No worker on {self._hardware.name} answers.", hint="`headway status` lists them.")

    async def max_ranks(self, machine: Machine) -> Mapping[Transport, int]:
        hosts = _by_machine(await self._workers())
        num_workers = sum(map(len, hosts))
        self._are_several = num_workers > 1
        if not self._are_several:
            return ranks_of_one(machine)
        on_one = len(hosts[0])
        if machine.hardware.device == "cuda":
            return {Transport.NCCL: on_one}
        return {
            Transport.SHARED_MEMORY: on_one,
            Transport.LOOPBACK: on_one,
            Transport.NETWORK: num_workers if len(hosts) > 1 else 0,
        }

    async def time(self, cells: Iterable[Cell]) -> AsyncGenerator[CellTiming | str, None]:
        """Times cells, and waits for busy workers for ever. InternalError names a cell that was lost several times."""
        for _, group in groupby(sorted(cells, key=_group), key=_group):
            missing = dict.fromkeys(group)
            num_lost = 0
            while missing:
                try:
                    async with aclosing(self._time_some(list(missing)[:_BATCH])) as timings:
                        async for timing in timings:
                            del missing[timing.cell]
                            num_lost = 0
                            yield timing
                    continue
                except FailedPreconditionError as error:
                    reason = f"waiting for idle workers: {error.message}"
                except (UnavailableError, DeadlineExceededError) as error:
                    num_lost += 1
                    if num_lost == _MAX_ATTEMPTS:
                        raise InternalError(
                            f"{next(iter(missing)).key} was lost {_MAX_ATTEMPTS} times: {error.message}",
                            hint="Run the command again, it goes on from there; or name other families with --only.",
                        ) from error
                    reason = f"waiting for a worker: {error.message}"
                self._turn += 1
                yield reason
                await self._bench_workers.wait(_RETRY_S)

    async def _time_some(self, cells: Sequence[Cell]) -> AsyncGenerator[CellTiming, None]:
        workers = await self._choose(cells[0])
        async with AsyncExitStack() as held:
            for machine in sorted({worker.machine for worker in workers}):
                await held.enter_async_context(self._machines.lock(machine))
            if len(workers) > 1:
                timings = time_together(self._bench_workers, workers, cells, share=self._share)
                await held.enter_async_context(aclosing(timings))
                async for timing in timings:
                    yield timing
                return
            answers = self._bench_workers.calibrate(workers[0], cells, share=self._share)
            await held.enter_async_context(aclosing(answers))
            async for answer in answers:
                if answer.timing is not None:
                    yield answer.timing

    async def _choose(self, cell: Cell) -> list[BenchWorker]:
        """Chooses one worker, in turns; for a collective one for each rank. FailedPreconditionError while there are too
        few."""
        hosts = _by_machine(await self._workers())
        if hosts and (cell.family not in COLLECTIVES or not self._are_several):
            workers = list(chain(*hosts))
            return [workers[self._turn % len(workers)]]
        if hosts and COLLECTIVES[cell.family].transport is Transport.NETWORK:
            chosen = [worker for row in zip_longest(*hosts) for worker in row if worker is not None]
        else:
            chosen = list(chain(*hosts[:1]))
        num_ranks = cell.extents[0]
        if not hosts or len(chosen) < num_ranks:
            raise FailedPreconditionError(f"Too few workers on {self._hardware.name} are running.")
        return chosen[:num_ranks]

    async def _workers(self) -> list[BenchWorker]:
        workers = await self._bench_workers.workers()
        return [worker for worker in workers if worker.hardware.content_hash == self._hardware.content_hash]


def _group(cell: Cell) -> tuple[str, bool, int]:
    """Sort key that puts together cells that one call can time: those without ranks first, then each group of ranks."""
    collective = COLLECTIVES.get(cell.family)
    if collective is None:
        return "", False, 1
    return collective.transport, collective.operation == "send", cell.extents[0]


def _by_machine(workers: Iterable[BenchWorker]) -> list[list[BenchWorker]]:
    """Groups the workers by machine, the machine with the most first; within one they are ordered by id."""
    hosts: defaultdict[str, list[BenchWorker]] = defaultdict(list)
    for worker in sorted(workers, key=lambda worker: worker.worker_id):
        hosts[worker.machine].append(worker)
    return sorted(hosts.values(), key=lambda host: -len(host))
