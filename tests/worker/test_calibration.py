"""The calibrating process: every call that it times runs, and collectives between real processes."""

import math

import pytest
import torch

from headway.core.codec import from_document, to_document
from headway.core.errors import InvalidArgumentError
from headway.core.hardware.calibration import CalibrationAnswer, CalibrationRequest
from headway.core.hardware.cell import Cell
from headway.core.hardware.family import COLLECTIVES, COMPUTE, CellFamily, Transport
from headway.rpc.child import call_child
from headway.worker.calibration.collectives import time_collectives
from headway.worker.calibration.operators import call_of
from headway.worker.calibration.rank import check_gpus
from headway.worker.calibration.timer import Timer

CPU = torch.device("cpu")


@pytest.mark.parametrize("family", COMPUTE, ids=lambda family: f"{family.name}-{family.dtypes[0]}")
def test_the_smallest_and_a_larger_cell_of_every_family_run(family: CellFamily) -> None:
    for number in (0, 1):
        extents = tuple(values[min(number, len(values) - 1)] for _, values in family.axes)
        call = call_of(Cell(family=family.name, dtype=family.dtypes[0], extents=extents), CPU)
        for _ in range(3):
            call()


def test_a_linear_layer_computes_what_its_extents_say() -> None:
    result = call_of(Cell(family="matmul", dtype="float32", extents=(3, 16, 64)), CPU)()
    assert isinstance(result, torch.Tensor)
    assert result.shape == (3, 16)


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="matmull"):
        call_of(Cell(family="matmull", dtype="float32", extents=(1,)), CPU)


def test_the_quickest_round_counts() -> None:
    """By a clock on which each call takes a second, and every third of them two."""
    now, calls = 0.0, 0

    def call() -> None:
        nonlocal now, calls
        calls += 1
        now += 2.0 if calls % 3 == 0 else 1.0

    seconds, spread = Timer(lambda: now).time(call)
    assert seconds == 1.0
    assert spread in (0.0, 1.0)


async def test_collectives_between_processes() -> None:
    transports = (Transport.SHARED_MEMORY, Transport.LOOPBACK)
    families = [name for name, each in COLLECTIVES.items() if each.transport in transports]
    cells = [Cell(family=name, dtype="float32", extents=(2, 1 << 20)) for name in families]
    request = to_document(CalibrationRequest(cells=tuple(cells)))
    answers = [
        from_document(CalibrationAnswer, answer)
        async for answer in call_child("headway.worker.calibration", request, deadline_s=170)
    ]
    machine = answers[0].machine
    assert machine is not None
    assert torch.__version__.startswith(machine.hardware.software["torch"].partition("+")[0])
    timings = [answer.timing for answer in answers[1:] if answer.timing is not None]
    assert {timing.cell for timing in timings} == set(cells)
    assert all(math.isfinite(timing.seconds) and timing.seconds > 0 for timing in timings)


def test_nccl_takes_a_gpu_for_each_rank() -> None:
    num_ranks = torch.cuda.device_count() + 2
    cell = Cell(family="all_reduce_nccl", dtype="float32", extents=(num_ranks, 1 << 20))
    with pytest.raises(InvalidArgumentError, match=f"among {num_ranks} takes a GPU for each rank"):
        next(time_collectives([cell]))
    check_gpus(["GPU-a", "GPU-b"])
    with pytest.raises(InvalidArgumentError, match=r"Ranks 0 and 2 are on one GPU \(GPU-a\)"):
        check_gpus(["GPU-a", "GPU-b", "GPU-a"])
