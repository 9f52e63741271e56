"""Cells, one after the other: those of this process, then those between processes."""

import time
from collections.abc import Iterator

import torch

from headway.core.hardware.calibration import CalibrationAnswer, CalibrationRequest, RankPlace
from headway.core.hardware.cell import CellTiming
from headway.core.hardware.family import COLLECTIVES
from headway.runner.parallel.rendezvous import Rendezvous
from headway.worker.calibration.collectives import time_collectives
from headway.worker.calibration.operators import call_of
from headway.worker.calibration.rank import time_as_rank
from headway.worker.calibration.timer import Timer


def calibrate(request: CalibrationRequest) -> Iterator[CalibrationAnswer]:
    """Times the cells of a request and yields each result as soon as it is known. With a place among other ranks, it
    first yields where they meet.
    """
    torch.set_num_threads(request.num_threads)
    if request.place is None:
        timings = _time_cells(request)
    else:
        rendezvous = _meet(request.place, request.host)
        yield CalibrationAnswer(rendezvous=str(rendezvous))
        timings = time_as_rank(request.cells, rank=request.place.rank, rendezvous=rendezvous)
    clock = time.perf_counter if request.place is None else time.process_time  # ranks wait for each other
    started_s = clock()
    for timing in timings:
        yield CalibrationAnswer(timing=timing)
        time.sleep((clock() - started_s) * (1 / request.share - 1))
        started_s = clock()


def _meet(place: RankPlace, host: str) -> Rendezvous:
    return Rendezvous.at(place.rendezvous) if place.rendezvous else Rendezvous.host(host)


def _time_cells(request: CalibrationRequest) -> Iterator[CellTiming]:
    device = torch.device(request.device)
    timer = Timer.of(device, num_threads=request.num_threads)
    with torch.inference_mode():
        for cell in request.cells:
            if cell.family not in COLLECTIVES:
                seconds, spread = timer.time(call_of(cell, device))
                yield CellTiming(cell=cell, seconds=seconds, spread=spread)
    yield from time_collectives([cell for cell in request.cells if cell.family in COLLECTIVES])
