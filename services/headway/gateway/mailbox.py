"""Where a task waits for what others have for it."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """A queue with one reader, who takes everything that has come at once: one wake-up for many items."""

    __slots__ = ("_items", "_loop", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()  # once: it costs a system call
        self._items: deque[T] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: T) -> None:
        self._items.append(item)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def put_back(self, items: Sequence[T]) -> None:
        """Items that were taken come first again."""
        self._items.extendleft(reversed(items))

    async def take(self) -> list[T]:
        """All items, oldest first; waits for one if there is none."""
        if not self._items:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        items = list(self._items)
        self._items.clear()
        return items
