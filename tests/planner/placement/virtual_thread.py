"""Threads that live in virtual time: one runs at a time, and where it sleeps the others go on."""

import math
import threading
from collections.abc import Callable
from typing import Any


class VirtualClock:
    """Moved by whoever drives the threads."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self._local = threading.local()

    def __call__(self) -> float:
        return self.time_s

    def now_s(self) -> float:
        return self.time_s

    def sleep_until(self, due_s: float) -> None:
        """Of the thread that calls."""
        if due_s > self.time_s:
            thread: VirtualThread = self._local.thread
            thread.pause(due_s)

    def belong(self, thread: "VirtualThread") -> None:
        """The thread that calls is that one."""
        self._local.thread = thread


class VirtualThread:
    """Makes one call after the other.

    Attributes:
        wake_s: when it goes on with its call; infinite without one.
        result: of the latest call; None while it goes on.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.wake_s = math.inf
        self.result: Any = None
        self._clock = clock
        self._call: Callable[[], Any] | None = None
        self._error: BaseException | None = None
        self._may_run, self._has_stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        return self.wake_s < math.inf

    def begin(self, call: Callable[[], Any]) -> None:
        """Makes a call as far as to where it sleeps or ends."""
        self._call, self.result = call, None
        self.resume()

    def resume(self) -> None:
        """Goes on to where the call sleeps again, or ends; raises what it raised."""
        self.wake_s = math.inf
        self._may_run.release()
        self._has_stopped.acquire()
        if self._error is not None:
            raise self._error

    def pause(self, until_s: float) -> None:
        self.wake_s = until_s
        self._has_stopped.release()
        self._may_run.acquire()

    def end(self) -> None:
        assert not self.is_busy, "its call has not ended"
        self._call = None
        self._may_run.release()
        self._thread.join()

    def _run(self) -> None:
        self._clock.belong(self)
        while True:
            self._may_run.acquire()
            if self._call is None:
                return
            try:
                self.result = self._call()
            except Exception as error:  # noqa: BLE001 - raised where the call was made
                self._error = error
            self._has_stopped.release()
