"""Whose turn it is among one-pass engines that share a group's devices: that of the request which is next of all."""

from collections.abc import Callable
from threading import Lock

from headway.core.line import Rank

Head = tuple[Rank, float]
"""Rank and arrival of an engine's next request."""


class GroupLine:
    """The heads of the engines' queues. Each engine has a thread of its own, so calls come from several."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._heads: dict[object, tuple[Head, Callable[[], None]]] = {}

    def offer(self, engine: object, head: Head | None, *, wake: Callable[[], None]) -> None:
        """What an engine would begin next; None for nothing. `wake` is called when its turn comes."""
        with self._guard:
            before = self._first()
            if head is None:
                self._heads.pop(engine, None)
            else:
                self._heads[engine] = head, wake
            first = self._first()
            call = self._heads[first][1] if first not in (None, before, engine) else None
        if call is not None:
            call()

    def is_first(self, engine: object) -> bool:
        with self._guard:
            return self._first() is engine

    def _first(self) -> object | None:
        return min(self._heads, key=lambda engine: self._heads[engine][0], default=None)
