"""Requests that wait for a place, per model: by rank, equals first come, first served; tenants by their fair shares."""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Container, Iterator, Sequence

from headway.core.errors import HeadwayError, ResourceExhaustedError
from headway.core.fair_share import FairShare
from headway.router.dispatcher import Shortage
from headway.router.lease import Lease
from headway.router.queued_request import QueuedRequest

_Line = OrderedDict[QueuedRequest, "asyncio.Future[Lease]"]


class WaitingQueue:
    """Two lines per model: resumed streams, which no full group holds up, go before the others.

    Args:
        fair_share: says which tenant is next of those that wait.
    """

    def __init__(self, fair_share: FairShare) -> None:
        self._fair_share = fair_share
        self._resumed: defaultdict[str, _Line] = defaultdict(OrderedDict)
        self._new: defaultdict[str, _Line] = defaultdict(OrderedDict)

    @property
    def models(self) -> set[str]:
        """Those that requests wait for."""
        return {model for lines in (self._resumed, self._new) for model, line in lines.items() if line}

    @property
    def num_queued(self) -> int:
        return sum(map(self.num_waiting, {*self._resumed, *self._new}))

    def num_waiting(self, model: str) -> int:
        return len(self._resumed.get(model, ())) + len(self._new.get(model, ()))

    def has_room(self, model: str, *, tenant: str, max_queue: int) -> bool:
        """Whether no more than `max_queue` wait for a model; or, where more do, no more of the tenant than its share of
        those places."""
        if self.num_waiting(model) <= max_queue:
            return True
        if not self._fair_share.is_shared:
            return False
        lines = self._resumed.get(model, ()), self._new.get(model, ())
        num_own = sum(queued.request.tenant == tenant for line in lines for queued in line)
        return num_own <= self._fair_share.share(tenant, max_queue)

    def enter(self, queued: QueuedRequest) -> "asyncio.Future[Lease]":
        """The request's place, once `serve` has found one."""
        place: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._fair_share.enter(queued.request.tenant, weight=queued.request.tenant_weight)
        self._line(queued)[queued] = place
        return place

    def leave(self, queued: QueuedRequest) -> None:
        """Gives up waiting; no change if the request has been served."""
        if self._line(queued).pop(queued, None) is not None:
            self._fair_share.leave(queued.request.tenant)

    def serve(self, model: str, *, place: Callable[[QueuedRequest], Lease | Shortage]) -> None:
        """Lets `place` find places, in order, until there is no room for the next one of each tenant.

        Who no group can take for now is passed over: where it may not go, others may.
        """
        full: set[str] = set()
        new = sorted(self._new[model], key=lambda queued: queued.rank)
        for requests in (list(self._resumed[model]), new):
            for queued in self._in_turn(requests, full):
                future = self._line(queued)[queued]
                if future.done():  # its caller has left and is about to say so
                    continue
                try:
                    found = place(queued)
                except ResourceExhaustedError as error:
                    future.set_exception(error)
                    self.leave(queued)
                    continue
                if found is Shortage.NO_ROOM:
                    full.add(queued.request.tenant)
                elif isinstance(found, Lease):
                    future.set_result(found)
                    self.leave(queued)

    def refuse(self, model: str, refusal: Callable[[], HeadwayError]) -> None:
        """Ends the waiting of all requests for a model."""
        for line in (self._resumed[model], self._new[model]):
            for queued, future in list(line.items()):
                if not future.done():
                    future.set_exception(refusal())
                    self.leave(queued)

    def _in_turn(self, requests: Sequence[QueuedRequest], full: Container[str]) -> Iterator[QueuedRequest]:
        """Yields each tenant's requests in their order, and those of tenants as is fair; none of one that is full."""
        by_tenant: dict[str, list[QueuedRequest]] = {queued.request.tenant: [] for queued in requests}
        for queued in reversed(requests):
            by_tenant[queued.request.tenant].append(queued)
        while waiting := [tenant for tenant, left in by_tenant.items() if left and tenant not in full]:
            yield by_tenant[min(waiting, key=self._fair_share.time)].pop()

    def _line(self, queued: QueuedRequest) -> _Line:
        lines = self._resumed if queued.request.resumed else self._new
        return lines[queued.request.model]
