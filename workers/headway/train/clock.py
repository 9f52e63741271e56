"""When a rank's parts begin and end, by the host's monotonic clock: also where the host does not wait for them."""

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """Marks moments, and says later when they were."""

    def begin(self) -> None:
        """Called before the first mark of each step, when nothing is at work."""

    def mark(self) -> Any:
        """This moment in the device's work."""

    def seconds(self, mark: Any) -> float:
        """When it was; only after `wait`."""

    def wait(self) -> None:
        """Returns when the device has done all its work."""


class HostClock:
    """Of a CPU, whose operators return when they are done."""

    def begin(self) -> None: ...

    def mark(self) -> float:
        return time.monotonic()

    def seconds(self, mark: float) -> float:
        return mark

    def wait(self) -> None: ...


class CudaClock:
    """Of a GPU, which does its work later: marks are events of the stream that parts run on."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.begin()

    def begin(self) -> None:
        self.wait()
        self._zero = self.mark()
        self._zero.synchronize()
        self._zero_s = time.monotonic()

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds(self, mark: torch.cuda.Event) -> float:
        return self._zero_s + float(self._zero.elapsed_time(mark)) / 1e3

    def wait(self) -> None:
        torch.cuda.synchronize(self._device)


def clock_of(device: torch.device) -> Clock:
    return CudaClock(device) if device.type == "cuda" else HostClock()
