"""The lock of a device that several models share: who holds it computes."""

import heapq
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock
from typing import Protocol


class DeviceLock(Protocol):
    """Held by one thread at a time of those of a device's models."""

    def hold(self, since_s: float | None = None) -> AbstractContextManager[None]:
        """Returns a context in which the device may be used.

        Args:
            since_s: when the caller began to wait, in `time.perf_counter`'s seconds; None for now.
        """


class FairDeviceLock:
    """First come, first served: `with device_lock.hold():` waits until all that have waited longer have had theirs.

    So a thread that asks again for each of its steps is held up by one step of each other one at most, but for requests
    that came before it asked.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._is_taken = False
        self._num_asked = 0
        self._gates: list[tuple[float, int, Lock]] = []  # closed ones, of those that wait; a heap

    @contextmanager
    def hold(self, since_s: float | None = None) -> Iterator[None]:
        """Holds the device in a context; see `DeviceLock.hold`."""
        self._enter(time.perf_counter() if since_s is None else since_s)
        try:
            yield
        finally:
            self._leave()

    def _enter(self, since_s: float) -> None:
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return
            gate = Lock()
            gate.acquire()
            self._num_asked += 1
            heapq.heappush(self._gates, (since_s, self._num_asked, gate))
        gate.acquire()  # opened by whoever holds the lock before

    def _leave(self) -> None:
        with self._guard:
            if self._gates:
                heapq.heappop(self._gates)[2].release()  # it stays taken, so that nobody comes in between
            else:
                self._is_taken = False


class NullDeviceLock:
    """A device lock that never waits, for runners that keep the order by themselves."""

    def hold(self, since_s: float | None = None) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()
