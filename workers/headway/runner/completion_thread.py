"""Batches of a pipeline under way, waited for in a thread of their own while their engine goes on."""

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

from headway.encoder.in_flight_batch import InFlightBatch


class CompletionThread:
    """Finishes batches in the order in which they were started.

    Args:
        room: so many are under way at once.

    Attributes:
        on_completed: called in that thread after each.
    """

    def __init__(self, *, room: int) -> None:
        self.on_completed: Callable[[], None] = lambda: None
        self._room = room
        self._num_taken = 0  # counted by the engine's thread
        self._num_completed = 0  # counted by this one
        self._inbox: SimpleQueue[tuple[InFlightBatch, Callable[[], list[bytes]], Future[list[bytes]]] | None] = (
            SimpleQueue()
        )
        self._thread = threading.Thread(target=self._run, name="completion", daemon=True)
        self._thread.start()

    @property
    def has_room(self) -> bool:
        return self._num_taken - self._num_completed < self._room

    def take(self, finish: Callable[[], list[bytes]]) -> InFlightBatch:
        """A batch that is due as soon as `finish` has returned; it then gives or raises what that did."""
        result: Future[list[bytes]] = Future()
        in_flight = InFlightBatch(result.result, due_s=math.inf)
        self._num_taken += 1
        self._inbox.put((in_flight, finish, result))
        return in_flight

    def close(self) -> None:
        """Returns when all have been finished."""
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (entry := self._inbox.get()) is not None:
            in_flight, finish, result = entry
            try:
                result.set_result(finish())
            except Exception as error:  # noqa: BLE001 - handed to the engine
                result.set_exception(error)
            in_flight.due_s = -math.inf
            self._num_completed += 1
            self.on_completed()
