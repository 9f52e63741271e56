"""The GPUs of this machine, as a plan for its ranks counts them."""

from headway.core.catalogue import read_catalogue
from headway.core.codec import from_document, to_document
from headway.core.hardware.calibration import CalibrationAnswer, CalibrationRequest
from headway.core.held_memory import RUNTIME_BYTES
from headway.core.training_job import CUDA
from headway.rpc.child import call_child


async def gpu_of_rank(num_ranks: int, *, deadline_s: float) -> tuple[str, int]:
    """The catalogue's name of the GPU that a rank of this machine computes on, and the bytes that it has of it.

    Raises:
        FailedPreconditionError: torch finds no GPU.
        NotFoundError: the catalogue does not know it.
    """
    request = to_document(CalibrationRequest(device=CUDA, cells=()))
    answers = [
        from_document(CalibrationAnswer, answer)
        async for answer in call_child("headway.worker.calibration", request, deadline_s=deadline_s)
    ]
    machine = answers[0].machine
    assert machine is not None, "the first answer says which machine it is"
    device = read_catalogue(None).device_of(machine.hardware)
    num_bytes = machine.hardware.memory_bytes if device.memory is None else int(device.memory.value)
    sharing = -(-num_ranks // machine.num_gpus)
    return device.name, num_bytes // sharing - RUNTIME_BYTES[CUDA]
