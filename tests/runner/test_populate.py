"""Memory that comes before it is used."""

import mmap
import re
from pathlib import Path

import pytest
import torch

from headway.runner import populate as populating
from headway.runner.populate import populate

NUM_BYTES = 64 << 20


def fresh_memory(num_bytes: int) -> torch.Tensor:
    """Pages that nobody has had: malloc may give out again, resident, what an earlier test has freed."""
    pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=torch.float32)


def resident_bytes(tensor: torch.Tensor) -> int:
    """Of the tensor's own pages, by the kernel's page map."""
    with Path("/proc/self/pagemap").open("rb") as pages:
        pages.seek(tensor.data_ptr() // mmap.PAGESIZE * 8)
        entries = torch.frombuffer(bytearray(pages.read(tensor.nbytes // mmap.PAGESIZE * 8)), dtype=torch.int64)
    return int((entries < 0).sum()) * mmap.PAGESIZE  # the highest bit: it is present


def test_memory_comes_without_being_written_to() -> None:
    memory = fresh_memory(NUM_BYTES)
    before = resident_bytes(memory)
    memory[12345:12348] = torch.tensor([1.0, 2.0, 3.0])
    thread = populate(memory)
    thread.join(30)
    assert not thread.is_alive()
    assert before < NUM_BYTES / 10
    assert resident_bytes(memory) > NUM_BYTES - 2 * mmap.PAGESIZE
    assert memory[12345:12348].tolist() == [1.0, 2.0, 3.0]


def test_memory_that_nobody_holds_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(populating, "_CHUNK_BYTES", mmap.PAGESIZE)
    memory = fresh_memory(4 * NUM_BYTES)  # 65,536 chunks
    thread = populate(memory)
    before = mapped_bytes()
    del memory
    thread.join(10)
    assert not thread.is_alive()
    assert mapped_bytes() < before - NUM_BYTES


def test_a_system_that_does_not_know_how_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(populating, "_MADV_POPULATE_WRITE", 9999)
    memory = fresh_memory(NUM_BYTES)
    with caplog.at_level("INFO"):
        populate(memory).join(10)
    assert "Invalid argument" in caplog.text
    assert resident_bytes(memory) < NUM_BYTES / 10


def mapped_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    match = re.search(r"VmSize:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) * 1024
