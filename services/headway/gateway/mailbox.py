"""Where a task waits for what others have for it."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """A queue with one reader, who takes everything that has come at once: one wake-up for many items."""

    __slots__ = ("_items", "_loop", "_shortcut", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()  # once: it costs a system call
        self._items: deque[T] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._shortcut: Callable[[T], bool] | None = None

    def put(self, item: T) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            self._items.append(item)
        elif self._shortcut is None or not self._goes_through(item, self._shortcut, waiter):
            self._items.append(item)
            waiter.set_result(None)

    def put_back(self, items: Sequence[T]) -> None:
        """Items that were taken come first again."""
        self._items.extendleft(reversed(items))

    async def take(self, shortcut: Callable[[T], bool] | None = None) -> list[T]:
        """All items, oldest first; waits for one if there is none.

        Args:
            shortcut: called with each item that comes while the reader waits; True if that does for the item, which the
                reader then sleeps through. What it raises, the reader gets.
        """
        if not self._items:
            self._waiter, self._shortcut = self._loop.create_future(), shortcut
            try:
                await self._waiter
            finally:
                self._waiter = self._shortcut = None
        items = list(self._items)
        self._items.clear()
        return items

    def _goes_through(self, item: T, shortcut: Callable[[T], bool], waiter: asyncio.Future[None]) -> bool:
        try:
            return shortcut(item)
        except Exception as error:  # noqa: BLE001 - handed to the reader
            waiter.set_exception(error)
            return True
