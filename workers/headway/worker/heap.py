"""What Python's garbage collector looks at in a worker: not what stays, as in `Host.serve`."""

import asyncio
import gc

_LAST_HOLD_S = 2.0


class Heap:
    """Of the process, as models come and go; for its event loop."""

    def __init__(self) -> None:
        self._settling: asyncio.TimerHandle | None = None

    def keep(self) -> None:
        """What is there now stays."""
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
