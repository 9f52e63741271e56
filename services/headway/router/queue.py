"""Requests that wait for a place, per model: by rank, equals first come, first served."""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable

from headway.core.errors import ResourceExhaustedError
from headway.router.dispatcher import Shortage
from headway.router.lease import Lease
from headway.router.queued_request import QueuedRequest

_Line = OrderedDict[QueuedRequest, "asyncio.Future[Lease]"]


class WaitingQueue:
    """Two lines per model: resumed streams, which no full group holds up, go before the others."""

    def __init__(self) -> None:
        self._resumed: defaultdict[str, _Line] = defaultdict(OrderedDict)
        self._new: defaultdict[str, _Line] = defaultdict(OrderedDict)

    @property
    def num_queued(self) -> int:
        return sum(map(self.num_waiting, {*self._resumed, *self._new}))

    def num_waiting(self, model: str) -> int:
        return len(self._resumed.get(model, ())) + len(self._new.get(model, ()))

    def enter(self, queued: QueuedRequest) -> "asyncio.Future[Lease]":
        """The request's place, once `serve` has found one."""
        place: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._line(queued)[queued] = place
        return place

    def leave(self, queued: QueuedRequest) -> None:
        """Gives up waiting; no change if the request has been served."""
        self._line(queued).pop(queued, None)

    def serve(self, model: str, *, place: Callable[[QueuedRequest], Lease | Shortage]) -> None:
        """Lets `place` find places, in order, until there is no room for the next one.

        Who no group can take for now is passed over: where it may not go, others may.
        """
        new = sorted(self._new[model].items(), key=lambda item: item[0].rank)
        for queued, future in [*self._resumed[model].items(), *new]:
            if future.done():  # its caller has left and is about to say so
                continue
            try:
                found = place(queued)
            except ResourceExhaustedError as error:
                future.set_exception(error)
                self.leave(queued)
                continue
            if found is Shortage.NO_ROOM:
                return
            if isinstance(found, Lease):
                future.set_result(found)
                self.leave(queued)

    def _line(self, queued: QueuedRequest) -> _Line:
        lines = self._resumed if queued.request.resumed else self._new
        return lines[queued.request.model]
