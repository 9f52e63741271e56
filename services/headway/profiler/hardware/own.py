"""Cells that are timed on this machine, in a process of its own."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing

from headway.core.codec import from_document, to_document
from headway.core.errors import UnavailableError
from headway.core.hardware.calibration import CalibrationAnswer, CalibrationRequest
from headway.core.hardware.cell import Cell, CellTiming
from headway.core.hardware.family import Transport
from headway.core.hardware.profile import Machine
from headway.rpc.child import call_child

CALIBRATION_MODULE = "headway.worker.calibration"
_DEADLINE_S = 4 * 3600.0


class OwnCalibrator:
    """Calibrates this machine in processes of its own; implements `headway.profiler.hardware.hardware.Calibrator`."""

    def __init__(self, *, device: str, num_threads: int) -> None:
        self._device = device
        self._num_threads = num_threads

    async def machine(self) -> Machine:
        async with aclosing(self._call([])) as answers:
            async for answer in answers:
                if answer.machine is not None:
                    return answer.machine
        raise UnavailableError("The timing process ended without a word.", hint="Try again.")

    async def max_ranks(self, machine: Machine) -> Mapping[Transport, int]:
        return ranks_of_one(machine)

    async def time(self, cells: Iterable[Cell]) -> AsyncGenerator[CellTiming | str, None]:
        async with aclosing(self._call(cells)) as answers:
            async for answer in answers:
                if answer.timing is not None:
                    yield answer.timing

    async def _call(self, cells: Iterable[Cell]) -> AsyncGenerator[CalibrationAnswer, None]:
        request = CalibrationRequest(device=self._device, num_threads=self._num_threads, cells=tuple(cells))
        child = call_child(CALIBRATION_MODULE, to_document(request), deadline_s=_DEADLINE_S)
        async with aclosing(child) as answers:
            async for answer in answers:
                yield from_document(CalibrationAnswer, answer)


def ranks_of_one(machine: Machine) -> Mapping[Transport, int]:
    """Processes that one machine has GPUs for, one each, or cores."""
    if machine.hardware.device == "cuda":
        return {Transport.NCCL: machine.num_gpus}
    return {Transport.SHARED_MEMORY: machine.num_cores, Transport.LOOPBACK: machine.num_cores}
