"""The re-planning loop: kept in Redis, so that it goes on where a controller left off."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from headway.controller.replanning import Replanning
from headway.core.errors import HeadwayError
from headway.core.replanning import ReplanningDecision, ReplanningPolicy, ReplanningStatus
from headway.core.search_progress import SearchProgress
from headway.store.replanning import ReplanningStore

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0


class ReplanningLoop:
    """Args:
    is_ready: whether what is desired is loaded; nothing is re-planned on the way there.
    """

    def __init__(self, store: ReplanningStore, *, replanning: Replanning, is_ready: Callable[[], bool]) -> None:
        self._store = store
        self._replanning = replanning
        self._is_ready = is_ready
        self._running = asyncio.Lock()
        self._asked_s = -math.inf  # monotonic, as is:
        self._began_s = -math.inf  # of the last one that is remembered

    async def set(self, how: ReplanningPolicy | None) -> None:
        """The first time is at once; None ends the duty."""
        await self._store.set_duty(how)
        self._asked_s = time.monotonic()

    async def status(self) -> ReplanningStatus:
        duty, decisions = await self._store.duty(), await self._store.decisions()
        next_at_s = 0.0 if duty is None else self._next_at_s(duty, decisions)
        return ReplanningStatus(replacement=duty, decisions=decisions, next_at_s=next_at_s)

    async def run(
        self, how: ReplanningPolicy, *, dry_run: bool
    ) -> AsyncGenerator[SearchProgress | ReplanningDecision, None]:
        """Once, now; see `Replanning.run`. What is only tried is not remembered."""
        async with self._running:
            began_s = time.monotonic()
            steps = self._replanning.run(how, dry_run=dry_run)
            async with aclosing(steps):
                async for told in steps:
                    if isinstance(told, ReplanningDecision) and not dry_run:
                        log.info("re-planning: %s: %s", told.verdict, told.reason)
                        await self._store.add(told)
                        self._began_s = began_s
                    yield told

    async def keep(self) -> None:
        """Re-plans whenever it is time; runs until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                await self._look()
            except HeadwayError as error:
                log.warning("re-planning waits: %s", error)

    async def _look(self) -> None:
        if not self._is_ready():
            return
        duty = await self._store.duty()
        if duty is None or self._next_at_s(duty, await self._store.decisions()) > time.time():
            return
        steps = self.run(duty, dry_run=False)
        async with aclosing(steps):
            async for _ in steps:
                pass

    def _next_at_s(self, duty: ReplanningPolicy, decisions: tuple[ReplanningDecision, ...]) -> float:
        """Counted from the last time, unless it was asked for anew since, or that was before the clock was set back."""
        now_s, last_s = time.time(), decisions[0].decided_at_s if decisions else 0.0
        return now_s if self._asked_s > self._began_s or last_s > now_s else last_s + duty.every_s
