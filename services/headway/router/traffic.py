"""Records the requests that arrive at the router and writes them in batches: Redis may be away, and no request waits
for it.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from headway.core.errors import HeadwayError
from headway.core.traffic import Arrival
from headway.router.lease import Lease, LeaseOutcome, Release
from headway.router.request import RoutingRequest
from headway.store.traffic import HOUR_S, Entry, TrafficStore

log = logging.getLogger(__name__)

_WRITE_EVERY_S = 0.5
_TRIM_EVERY_S = 60.0
_MOST_UNWRITTEN = 200_000
_MOST_OPEN = 200_000

_Key = tuple[str, str]  # gateway and request


class TrafficRecord:
    """Counts each request once, also one that is refused, or goes on elsewhere.

    Args:
        run: unlike that of any other router.
        clock: seconds since 1970.
    """

    def __init__(self, store: TrafficStore, *, run: str, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._run = run
        self._clock = clock
        self._next = 0
        self._unwritten: list[tuple[int, Arrival]] = []
        self._ended: list[tuple[int, int, int]] = []  # hour, number, tokens
        self._open: dict[_Key, tuple[int, int]] = {}  # hour and number

    @contextmanager
    def arriving(self, request: RoutingRequest) -> Iterator[None]:
        """Notes a request that is new. What it was given is told by its release, unless no place is found in the
        block."""
        key = (request.gateway_id, request.request_id)
        if not (request.resumed or request.excluded_worker_ids or key in self._open):
            arrival = Arrival(
                at_s=self._clock(),
                model=request.model,
                num_prompt_tokens=request.num_prompt_tokens,
                max_output_tokens=request.max_output_tokens,
                slo=request.slo,
            )
            self._unwritten.append((self._next, arrival))
            if len(self._open) < _MOST_OPEN:
                self._open[key] = (int(arrival.at_s // HOUR_S), self._next)
            self._next += 1
        try:
            yield
        except BaseException:
            self._open.pop(key, None)
            raise

    def end(self, lease: Lease, release: Release) -> None:
        """Notes what a request was given; one that goes on elsewhere has not ended."""
        if release.outcome is not LeaseOutcome.MOVED:
            place = self._open.pop((lease.gateway_id, lease.request_id), None)
            if place is not None:
                self._ended.append((*place, release.num_output_tokens))

    async def flush(self) -> None:
        """Writes what was noted since the last time; UnavailableError leaves it for the next."""
        arrivals, self._unwritten = self._unwritten, []
        ended, self._ended = self._ended, []
        try:
            await self._write(arrivals, ended)
        except HeadwayError:
            self._unwritten = (arrivals + self._unwritten)[-_MOST_UNWRITTEN:]
            self._ended = (ended + self._ended)[-_MOST_UNWRITTEN:]
            raise

    async def keep(self) -> None:
        """Writes every half second; runs until cancelled."""
        trimmed_s = -_TRIM_EVERY_S
        while True:
            await asyncio.sleep(_WRITE_EVERY_S)
            try:
                await self.flush()
                if (now_s := time.monotonic()) - trimmed_s >= _TRIM_EVERY_S:
                    self._forget_lost()
                    await self._store.trim(self._clock())
                    trimmed_s = now_s
            except HeadwayError as error:
                log.warning("traffic is written later: %s", error)

    async def _write(self, arrivals: Sequence[tuple[int, Arrival]], ended: Iterable[tuple[int, int, int]]) -> None:
        by_hour: defaultdict[int, list[tuple[int, Arrival]]] = defaultdict(list)
        for number, arrival in arrivals:
            by_hour[int(arrival.at_s // HOUR_S)].append((number, arrival))
        given: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for hour, number, num_tokens in ended:
            given[hour][number] = num_tokens
        if entries := {hour: self._entry(by_hour[hour], given[hour]) for hour in {*by_hour, *given}}:
            await self._store.add(entries)

    def _forget_lost(self) -> None:
        """Nobody will release what arrived so long ago: its gateway is gone."""
        latest = int(self._clock() // HOUR_S)
        self._open = {key: place for key, place in self._open.items() if place[0] >= latest - 1}

    def _entry(self, arrivals: list[tuple[int, Arrival]], given: dict[int, int]) -> Entry:
        return Entry(
            run=self._run,
            first=arrivals[0][0] if arrivals else 0,
            arrivals=tuple(arrival for _, arrival in arrivals),
            output_tokens=given,
        )
