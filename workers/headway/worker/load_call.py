"""A LoadModel call while it runs: what the loading thread tells its caller, and whether the caller still waits."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from headway.core.errors import CancelledError


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """The progress of a model's loading.

    Attributes:
        fraction: the part that is done, in [0, 1].
        stage: what is being done, in words.
        rendezvous: where a group's ranks find their leader; the leader says it once, before it waits for them.
    """

    fraction: float
    stage: str
    rendezvous: str = ""


class LoadCall:
    """Made in the event loop, which reads `progress`; the other methods are the loading thread's."""

    def __init__(self) -> None:
        self._is_cancelled = False
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[LoadProgress | None] = asyncio.Queue()

    def tell(self, fraction: float, stage: str, *, rendezvous: str = "") -> None:
        progress = LoadProgress(fraction=fraction, stage=stage, rendezvous=rendezvous)
        self._loop.call_soon_threadsafe(self._queue.put_nowait, progress)

    def is_cancelled(self) -> bool:
        """Whether the caller has gone away."""
        return self._is_cancelled

    def check(self) -> None:
        """CancelledError where the caller has gone away."""
        if self._is_cancelled:
            raise CancelledError("The call that asked for the model has ended.")

    async def progress(self, load: "asyncio.Task[None]") -> AsyncGenerator[LoadProgress, None]:
        """Yields the progress until `load` has ended. A reader that stops earlier has cancelled the load."""
        load.add_done_callback(lambda _: self._queue.put_nowait(None))
        try:
            while (progress := await self._queue.get()) is not None:
                yield progress
        finally:
            self._is_cancelled = not load.done()
