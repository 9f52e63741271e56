"""Leases: each that the router gives is released exactly once, whatever happens to the client."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from headway.core.errors import HeadwayError
from headway.gateway.lease import Lease, Outcome, PlaceRequest, Release, Router

log = logging.getLogger(__name__)

# A place may be given at the very moment its client leaves: we wait this long to learn of it and hand it back.
_LATE_LEASE_S = 0.2
_CLOSE_TIMEOUT_S = 2.0


class Places:
    """Takes places from the router and gives them back in the background."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, request: PlaceRequest) -> Lease:
        """A lease; HeadwayError where the router refuses. A lease that comes after a cancellation is released."""
        routing = asyncio.ensure_future(self._router.route(request))
        try:
            return await asyncio.shield(routing)
        except asyncio.CancelledError:
            self._spawn(self._return_late(routing))
            raise

    def release(self, release: Release) -> None:
        """Returns at once; the router hears of it in the background."""
        self._spawn(self._release(release))

    async def close(self) -> None:
        """Waits until the router has heard of everything, or two seconds; it drops the leases of who is gone."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_TIMEOUT_S)

    async def _return_late(self, routing: asyncio.Task[Lease]) -> None:
        await asyncio.wait({routing}, timeout=_LATE_LEASE_S)
        if not routing.done():
            routing.cancel()
        elif not routing.cancelled() and routing.exception() is None:
            await self._release(Release(lease_id=routing.result().lease_id, outcome=Outcome.CANCELLED))

    async def _release(self, release: Release) -> None:
        try:
            await self._router.release(release)
        except HeadwayError as error:
            # A router that is gone has forgotten the lease; one that lives drops it with time.
            log.warning("lease %s was not released: %s", release.lease_id, error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
