"""An engine's thread: it alone touches the engine; others hand it calls and get its outputs on their event loop."""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from headway.core.errors import FailedPreconditionError, UnavailableError
from headway.engine.batch import RunnerLostError

log = logging.getLogger(__name__)

R = TypeVar("R")
E = TypeVar("E", bound="SteppedEngine")

_MAX_FAILED_STEPS = 3


class SteppedEngine(Protocol):
    """What a thread drives. Outputs and stats are its listener's business; the thread passes them on unseen."""

    @property
    def has_work(self) -> bool: ...

    def step(self) -> list[Any]: ...

    def fail_all(self, error: str) -> list[Any]: ...

    def stats(self) -> Any: ...


class StepListener(Protocol):
    """Hears on the event loop what each step brought."""

    def on_step(self, outputs: list[Any], stats: Any) -> None: ...

    def on_idle(self, stats: Any) -> None:
        """A call, such as a cancellation, left the engine without work: no step follows that would tell."""

    def on_crash(self) -> None:
        """The engine has stopped: its runner failed several steps in a row, or is gone."""


class EngineThread(Generic[E]):
    """Runs an engine while there is work and sleeps when there is none.

    A step that fails ends its requests with an error; after `_MAX_FAILED_STEPS` in a row the thread gives up. It gives
    up at once where the runner is gone, and then leaves its requests as they are: they can go on elsewhere.
    """

    def __init__(self, engine: E, *, listener: StepListener, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._listener = listener
        self._loop = loop
        self._inbox: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the step it is in."""
        self._inbox.put(None)

    async def join(self) -> None:
        await asyncio.to_thread(self._thread.join)

    def post(self, action: Callable[[E], object]) -> None:
        """Runs `action` in the engine's thread before its next step; it must not raise."""
        self._inbox.put(lambda: action(self._engine))

    async def call(self, action: Callable[[E], R]) -> R:
        """Runs `action` in the engine's thread and returns or raises what it did; cancelled before, it does not run."""
        future: Future[R] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
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

        return await self.call(run)

    def _run(self) -> None:
        try:
            self._work()
        except RunnerLostError as error:
            log.warning("the engine has lost its runner: %s", error)
            self._tell(self._listener.on_crash)

    def _work(self) -> None:
        num_failed_steps = 0
        while self._take_calls():
            try:
                outputs = self._engine.step()
                num_failed_steps = 0
            except RunnerLostError:
                raise
            except Exception:
                log.exception("an engine step failed")
                outputs = self._engine.fail_all("The worker failed to compute this request; its log says why.")
                num_failed_steps += 1
            self._tell(self._listener.on_step, outputs, self._engine.stats())
            if num_failed_steps == _MAX_FAILED_STEPS:
                self._tell(self._listener.on_crash)
                return

    def _take_calls(self) -> bool:
        """Runs what is in the inbox, waiting for more until there is work; False to end."""
        while not self._inbox.empty() or not self._engine.has_work:
            call = self._inbox.get()
            if call is None:
                return False
            call()
            if not self._engine.has_work:
                self._tell(self._listener.on_idle, self._engine.stats())
        return True

    def _tell(self, method: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(method, *arguments)
        except RuntimeError:  # the loop has closed: the process is ending
            self.stop()
