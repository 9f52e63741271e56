"""An engine's thread: it alone touches the engine; others hand it calls and get its outputs on their event loop."""

import asyncio
import logging
import math
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from headway.core.errors import FailedPreconditionError, UnavailableError
from headway.engine.batch import RunnerLostError
from headway.runner.device_lock import DeviceLock

log = logging.getLogger(__name__)

R = TypeVar("R")
E = TypeVar("E", bound="SteppedEngine")

_MAX_FAILURES = 3
_FAILED = "The worker failed to compute this request; its log says why."


class SteppedEngine(Protocol):
    """An engine that a thread steps. The thread passes its outputs and stats on to the listener without looking at
    them.
    """

    @property
    def has_work(self) -> bool: ...

    @property
    def pause_s(self) -> float:
        """Seconds for which there is no step to take while it has work, unless a call comes; infinity for as long as
        none does."""

    @property
    def waiting_since_s(self) -> float:
        """When the next step began to wait, in `time.perf_counter`'s seconds."""

    def step(self) -> list[Any]: ...

    def recover(self, error: str) -> list[Any]:
        """Recovers after a step that raised: ends the requests that failed, as far as they are known by now, with this
        error, and returns their last outputs. The next step goes on with the others.
        """

    @property
    def num_failures(self) -> int:
        """The number of failures, each of which ended requests, since a step last succeeded."""

    def stats(self) -> Any: ...


class StepListener(Protocol):
    """Receives the outputs of each step, on the event loop."""

    def on_step(self, outputs: list[Any], stats: Any) -> None: ...

    def on_idle(self, stats: Any) -> None:
        """A call, such as a cancellation, left the engine without work: no step follows that would tell."""

    def on_crash(self) -> None:
        """The engine has stopped: its runner fails whatever it is given, or is gone."""


class EngineThread(Generic[E]):
    """Runs an engine while there is work and sleeps when there is none. Each step holds the device's lock.

    A request for which steps fail ends with an error. When `_MAX_FAILURES` have, and no step succeeded in between, the
    thread gives up, and at once where the runner is gone or the engine does not even recover. It leaves the requests as
    they are then: they can go on elsewhere.

    Attributes:
        has_crashed: whether it has given up.
        running_step: the number of the step that is being computed; 0 while none is.
    """

    def __init__(
        self, engine: E, *, listener: StepListener, device_lock: DeviceLock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._engine = engine
        self._listener = listener
        self._device_lock = device_lock
        self._loop = loop
        self.has_crashed = False
        self.running_step = 0
        self._num_steps = 0
        self._inbox: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the step it is in."""
        self._inbox.put(None)

    async def join(self) -> None:
        await asyncio.to_thread(self._thread.join)

    def stack(self) -> str:
        """Where the thread is just now, the innermost call last."""
        frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001 - there is no other way
        return "".join(traceback.format_stack(frame)) if frame is not None else ""

    def post(self, action: Callable[[E], object]) -> None:
        """Runs `action` in the engine's thread before its next step; it must not raise."""
        self._inbox.put(lambda: action(self._engine))

    def wake(self) -> None:
        """Has the engine look whether there is a step to take; from any thread."""
        self._inbox.put(lambda: None)

    async def call(self, action: Callable[[E], R], *, on_device: bool = False) -> R:
        """Runs `action` in the engine's thread and returns or raises what it did; cancelled before, it does not run.

        Args:
            on_device: it has the runner do something, and holds the device's lock as a step does.
        """
        future: Future[R] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                with self._device_lock.hold() if on_device else nullcontext():
                    future.set_result(action(self._engine))
            except RunnerLostError:
                future.set_exception(UnavailableError("Ranks of the worker's group are gone.", hint="Try again."))
                raise
            except Exception as error:  # noqa: BLE001 - handed to the caller
                future.set_exception(error)

        self._inbox.put(run)
        return await asyncio.wrap_future(future)

    async def call_when_idle(self, action: Callable[[], R]) -> R:
        """Runs `action` in the engine's thread; FailedPreconditionError while requests are running."""

        def run(engine: E) -> R:
            if engine.has_work:
                raise FailedPreconditionError("The worker is serving requests.", hint="Try again when it is idle.")
            return action()

        return await self.call(run, on_device=True)

    def _run(self) -> None:
        try:
            self._work()
        except RunnerLostError as error:
            log.warning("the engine has lost its runner: %s", error)
            self._give_up()
        except Exception:  # root of the thread
            log.exception("the engine's thread ends, and what runs here goes on elsewhere")
            self._give_up()

    def _work(self) -> None:
        while self._take_calls():
            try:
                with self._device_lock.hold(self._engine.waiting_since_s):
                    self.running_step = self._num_steps = self._num_steps + 1
                    outputs = self._engine.step()
            except RunnerLostError:
                raise
            except Exception:
                log.exception("an engine step failed")
                outputs = self._engine.recover(_FAILED)
            finally:
                self.running_step = 0
            self._tell(self._listener.on_step, outputs, self._engine.stats())
            if self._engine.num_failures >= _MAX_FAILURES:
                self._give_up()
                return

    def _give_up(self) -> None:
        self.has_crashed = True
        self._tell(self._listener.on_crash)

    def _take_calls(self) -> bool:
        """Runs what is in the inbox, waiting for more until there is a step to take; False to end."""
        while (pause_s := self._pause_s()) != 0 or not self._inbox.empty():
            try:
                call = self._inbox.get(timeout=pause_s)
            except Empty:
                return True
            if call is None:
                return False
            call()
            if not self._engine.has_work:
                self._tell(self._listener.on_idle, self._engine.stats())
        return True

    def _pause_s(self) -> float | None:
        """Returns the seconds to wait for calls; None to wait without limit."""
        pause_s = self._engine.pause_s if self._engine.has_work else math.inf
        return pause_s if pause_s < math.inf else None

    def _tell(self, method: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(method, *arguments)
        except RuntimeError:  # the loop has closed: the process is ending
            self.stop()
