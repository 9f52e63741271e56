"""The queue in which the outputs of a prompt's sequences wait for its task."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class OutputQueue(Generic[T]):
    """A queue with one reader, who takes everything that has come at once: one wake-up for many items."""

    __slots__ = ("_items", "_loop", "_shortcut", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()  # once: it costs a system call
        self._items: deque[T] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._shortcut: Callable[[T], bool] | None = None

    def put(self, item: T) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            shortcut = self._shortcut
            if shortcut is not None:
                try:
                    if shortcut(item):
                        return
                except Exception as error:  # noqa: BLE001 - handed to the reader
                    waiter.set_exception(error)
                    return
            waiter.set_result(None)
        self._items.append(item)

    def put_back(self, items: Sequence[T]) -> None:
        """Items that were taken come first again."""
        self._items.extendleft(reversed(items))

    async def take(self, shortcut: Callable[[T], bool] | None = None) -> list[T]:
        """Returns all items, the oldest first; waits for one if there is none.

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
