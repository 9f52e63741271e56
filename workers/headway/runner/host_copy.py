"""Copies tensors from a device to the host without waiting for them."""

from collections.abc import Sequence

import torch
from torch import Tensor


class HostCopy:
    """Starts to copy tensors of one device; what is launched on it afterwards does not hold them up."""

    def __init__(self, *tensors: Tensor) -> None:
        self._copies: Sequence[Tensor] = tensors
        self._arrival: torch.cuda.Event | None = None
        device = tensors[0].device
        if device.type != "cpu":
            self._copies = [tensor.to("cpu", non_blocking=True) for tensor in tensors]
            self._arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrival.record(torch.cuda.current_stream(device))

    def wait(self) -> Sequence[Tensor]:
        """The tensors, on the CPU."""
        if self._arrival is not None:
            self._arrival.synchronize()
        return self._copies
