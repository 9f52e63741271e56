"""Keeps Python's garbage collector from scanning the objects that stay, as `Host.serve` does."""

import asyncio
import gc
import weakref
from typing import Any

_FIRST_LOOK_S = 2.0
_LONGEST_LOOK_S = 60.0


class Heap:
    """Freezes and frees the process's garbage-collected heap as models come and go. Use it on the event loop.

    What is frozen is never freed. A call or a thread may hold a model that was unloaded for as long as it likes, so
    nothing is frozen while the runner of one is still there.

    Args:
        first_look_s: after an unload it is looked for its runner; then after twice as long, up to a minute.
    """

    def __init__(self, *, first_look_s: float = _FIRST_LOOK_S) -> None:
        self._first_look_s = first_look_s
        self._leaving: list[weakref.ref[Any]] = []
        self._next_look: asyncio.TimerHandle | None = None

    def keep(self) -> None:
        """Freezes all objects that exist now, or once what was unloaded is gone: the garbage collector no longer scans
        or frees them.
        """
        if not self._leaving:
            gc.freeze()

    def free(self, runner: "weakref.ref[Any]") -> None:
        """Frees what a model has left, and freezes the rest once its runner is gone."""
        self._leaving.append(runner)
        gc.unfreeze()
        gc.collect()
        self._look_after(self._first_look_s)

    def _look_after(self, delay_s: float) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        self._next_look = asyncio.get_running_loop().call_later(delay_s, self._look, delay_s)

    def _look(self, waited_s: float) -> None:
        gc.collect()
        self._leaving = [runner for runner in self._leaving if runner() is not None]
        if self._leaving:
            self._look_after(min(2 * waited_s, _LONGEST_LOOK_S))
        else:
            gc.freeze()
