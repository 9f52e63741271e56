"""Collectives over NCCL between two GPUs, as `headway profile hardware` times them."""

import pytest
import torch

from headway.core.codec import from_document, to_document
from headway.core.hardware.calibration import CalibrationAnswer, CalibrationRequest
from headway.core.hardware.cell import Cell
from headway.core.hardware.family import COLLECTIVES, Transport
from headway.rpc.child import call_child

if torch.cuda.device_count() < 2:
    pytest.skip("not run: there are no two GPUs here", allow_module_level=True)


async def test_every_collective_is_timed_between_two_gpus() -> None:
    families = [name for name, each in COLLECTIVES.items() if each.transport is Transport.NCCL]
    cells = [Cell(family=name, dtype="float32", extents=(2, size)) for name in families for size in (1 << 10, 1 << 24)]
    request = to_document(CalibrationRequest(device="cuda", cells=tuple(cells)))
    answers = [
        from_document(CalibrationAnswer, answer)
        async for answer in call_child("headway.worker.calibration", request, deadline_s=170)
    ]
    machine = answers[0].machine
    assert machine is not None
    assert machine.num_gpus == torch.cuda.device_count()
    seconds = {answer.timing.cell: answer.timing.seconds for answer in answers if answer.timing is not None}
    assert seconds.keys() == set(cells)
    assert all(value > 0 for value in seconds.values())
