"""Pinned memory, with CUDA's calls written down instead of made."""

from contextlib import nullcontext

import pytest
import torch

from headway.runner.pinned import pin

GPU = torch.device("cuda", 1)


class Cudart:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.code = 0

    def cudaHostRegister(self, address: int, num_bytes: int, flags: int) -> int:  # noqa: N802
        self.calls.append((f"register {num_bytes}", address))
        return self.code

    def cudaHostUnregister(self, address: int) -> None:  # noqa: N802
        self.calls.append(("unregister", address))


@pytest.fixture
def cudart(monkeypatch: pytest.MonkeyPatch) -> Cudart:
    cudart = Cudart()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cudart)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    return cudart


def test_memory_is_registered_in_its_size_until_it_is_dropped(cudart: Cudart) -> None:
    memory = pin(torch.empty(3, 100), GPU)
    address = memory.data_ptr()
    assert cudart.calls == [("register 1200", address)]
    del memory
    assert cudart.calls[1:] == [("unregister", address)]


def test_nothing_is_registered_of_nothing(cudart: Cudart) -> None:
    assert pin(torch.empty(0, 100), GPU).shape == (0, 100)
    assert cudart.calls == []


def test_what_cannot_be_pinned_is_an_error_and_stays_unregistered(cudart: Cudart) -> None:
    cudart.code = 2
    with pytest.raises(torch.cuda.CudaError, match="out of memory"):
        pin(torch.empty(10), GPU)
    assert len(cudart.calls) == 1
