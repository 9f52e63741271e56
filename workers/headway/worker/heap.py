"""Keeps Python's garbage collector from scanning the objects that stay, as `Host.serve` does."""

import asyncio
import gc

_LAST_HOLD_S = 2.0


class Heap:
    """Freezes and frees the process's garbage-collected heap as models come and go. Use it on the event loop."""

    def __init__(self) -> None:
        self._settling: asyncio.TimerHandle | None = None

    def keep(self) -> None:
        """Freezes all objects that exist now: the garbage collector no longer scans or frees them."""
        gc.freeze()

    def free(self) -> None:
        """Frees what a model has left.

        A call or a thread that is about to end may hold some of it for a moment longer, and what is kept is never
        freed; so that waits.
        """
        gc.unfreeze()
        gc.collect()
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().call_later(_LAST_HOLD_S, self._settle)

    def _settle(self) -> None:
        gc.collect()
        gc.freeze()
