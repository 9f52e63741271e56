"""What a worker says that it runs on, by what CUDA says."""

from dataclasses import dataclass

import pytest

from headway.core.errors import FailedPreconditionError
from headway.worker.hardware import detect_hardware

GIB = 1024**3


@dataclass
class Gpu:
    name: str
    total_memory: int


class MachineOfGpus:
    """Answers as CUDA does in a process that sees some of a machine's GPUs: by their numbers among those."""

    def __init__(self, *gpus: Gpu, visible: str) -> None:
        numbers = [int(name) for name in visible.split(",") if name]
        self._seen = [gpus[number] for number in numbers if number < len(gpus)]

    def device_count(self) -> int:
        return len(self._seen)

    def get_device_properties(self, device: int) -> Gpu:
        return self._seen[device]


GPUS = Gpu("NVIDIA H100", 80 * GIB), Gpu("NVIDIA L4", 24 * GIB)


@pytest.mark.parametrize(("visible", "name", "memory_bytes"), [("0", "NVIDIA H100", 80), ("1", "NVIDIA L4", 24)])
def test_a_worker_has_the_gpu_that_it_is_shown_and_its_memory(
    monkeypatch: pytest.MonkeyPatch, visible: str, name: str, memory_bytes: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    cuda = MachineOfGpus(*GPUS, visible=visible)
    hardware = detect_hardware(device="cuda", num_threads=1, memory_bytes=2**50, cuda=cuda)
    assert (hardware.name, hardware.memory_bytes, hardware.device_id) == (name, memory_bytes * GIB, visible)


def test_which_of_two_gpus_it_is_makes_no_difference_to_timings(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = set()
    for visible in ("0", "1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        cuda = MachineOfGpus(GPUS[0], GPUS[0], visible=visible)
        hashes.add(detect_hardware(device="cuda", num_threads=1, memory_bytes=GIB, cuda=cuda).content_hash)
    assert len(hashes) == 1


def test_a_worker_without_a_gpu_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    with pytest.raises(FailedPreconditionError, match=r"CUDA_VISIBLE_DEVICES=2 .*--device cpu"):
        detect_hardware(device="cuda", num_threads=1, memory_bytes=GIB, cuda=MachineOfGpus(*GPUS, visible="2"))
