"""The record of arrivals in Redis: lists by hour, each entry some requests, column by column and compressed.

An hour's list expires as a whole, and with it what is known of its requests. What a request was given is told in an
entry of its own, in the list of the hour in which it arrived.
"""

import base64
import json
import logging
import zlib
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from headway.core.errors import InvalidArgumentError
from headway.core.slo import Slo
from headway.core.traffic import Arrival
from headway.store.counts import queue_counts, read_counts
from headway.store.redis import Database, redis_faults
from headway.store.schema import TRAFFIC, TRAFFIC_COUNTS
from headway.store.spoilt import UNREADABLE

log = logging.getLogger(__name__)

HOUR_S = 3600
RETENTION_S = 7 * 86_400.0
MAX_REQUESTS = 10_000_000
_US = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Some requests of one hour, of one run of a router.

    Attributes:
        first: number of the first arrival; the others count on from it.
        output_tokens: of requests of that hour that have ended, by number.
    """

    run: str
    first: int
    arrivals: tuple[Arrival, ...]
    output_tokens: Mapping[int, int]


class TrafficStore:
    """Every method raises UnavailableError while Redis is away.

    Args:
        retention_s: after which an hour is forgotten.
        max_requests: beyond which the oldest hours are forgotten, whole; never the latest.
    """

    def __init__(
        self, database: Database, *, retention_s: float = RETENTION_S, max_requests: int = MAX_REQUESTS
    ) -> None:
        self._database = database
        self._retention_s = retention_s
        self._max_requests = max_requests

    async def add(self, entries: Mapping[int, Entry]) -> None:
        """Adds an entry to each of some hours since 1970, all or none."""
        with redis_faults():
            async with self._database.redis.pipeline(transaction=True) as pipeline:
                for hour, entry in entries.items():
                    key = self._key(hour)
                    pipeline.rpush(key, _encode(entry))
                    pipeline.expireat(key, int((hour + 1) * HOUR_S + self._retention_s))
                    if entry.arrivals:
                        queue_counts(pipeline, self._counts, {str(hour): len(entry.arrivals)})
                await pipeline.execute()

    async def trim(self, now_s: float) -> None:
        """Forgets hours that are too old, or too many."""
        counts = await self._hours()
        total, forgotten = sum(counts.values()), []
        for hour in sorted(counts)[:-1]:
            if (hour + 1) * HOUR_S + self._retention_s > now_s and total <= self._max_requests:
                break
            total -= counts[hour]
            forgotten.append(hour)
        if forgotten:
            with redis_faults():
                await self._database.redis.delete(*(self._key(hour) for hour in forgotten))
                await cast("Awaitable[int]", self._database.redis.hdel(self._counts, *map(str, forgotten)))

    async def read(self, start_s: float, end_s: float) -> AsyncGenerator[list[Arrival], None]:
        """Yields the requests that arrived in [start_s, end_s), in the order of time, one hour after the other."""
        for hour in sorted(await self._hours()):
            if (hour + 1) * HOUR_S <= start_s or hour * HOUR_S >= end_s:
                continue
            with redis_faults():
                texts = await cast("Awaitable[list[str]]", self._database.redis.lrange(self._key(hour), 0, -1))
            found = _join(entry for text in texts if (entry := _decode(text)) is not None)
            yield sorted((each for each in found if start_s <= each.at_s < end_s), key=lambda each: each.at_s)

    async def _hours(self) -> dict[int, int]:
        with redis_faults():
            counts = await cast("Awaitable[dict[str, str]]", self._database.redis.hgetall(self._counts))
        return {int(hour): num for hour, num in read_counts(counts).items() if hour.isdecimal()}

    def _key(self, hour: int) -> str:
        return TRAFFIC.key(self._database.namespace, str(hour))

    @property
    def _counts(self) -> str:
        return TRAFFIC_COUNTS.key(self._database.namespace)


def _join(entries: Iterable[Entry]) -> list[Arrival]:
    """Joins each arrival with the answer that it was given."""
    arrivals: dict[tuple[str, int], Arrival] = {}
    ended: dict[tuple[str, int], int] = {}
    for entry in entries:
        arrivals |= {(entry.run, number): each for number, each in enumerate(entry.arrivals, entry.first)}
        ended |= {(entry.run, number): num_tokens for number, num_tokens in entry.output_tokens.items()}
    for request, num_tokens in ended.items():
        if request in arrivals:
            arrivals[request] = replace(arrivals[request], num_output_tokens=num_tokens)
    return list(arrivals.values())


def _encode(entry: Entry) -> str:
    models = list(dict.fromkeys(each.model for each in entry.arrivals))
    at_us = [round(each.at_s / _US) for each in entry.arrivals]
    document = {
        "run": entry.run,
        "first": entry.first,
        "models": models,
        "gap_us": [at - before for at, before in zip(at_us, [0, *at_us], strict=False)],
        "model": [models.index(each.model) for each in entry.arrivals],
        "prompt": [each.num_prompt_tokens for each in entry.arrivals],
        "output": [each.max_output_tokens for each in entry.arrivals],
        "ttft_s": [each.slo.ttft_s for each in entry.arrivals],
        "tpot_s": [each.slo.tpot_s for each in entry.arrivals],
        "e2e_s": [each.slo.e2e_s for each in entry.arrivals],
        "ended": list(entry.output_tokens),
        "given": list(entry.output_tokens.values()),
    }
    return base64.b64encode(zlib.compress(json.dumps(document, separators=(",", ":")).encode())).decode()


def _decode(text: str) -> Entry | None:
    """None for an entry that cannot be read, which is left out."""
    try:
        return _read(json.loads(zlib.decompress(base64.b64decode(text))))
    except (*UNREADABLE, InvalidArgumentError) as error:
        log.warning("some recorded requests cannot be read, and are left out: %s", error)
        return None


def _read(document: dict[str, Any]) -> Entry:
    at_us, arrivals = 0, []
    columns = (document[name] for name in ("gap_us", "model", "prompt", "output", "ttft_s", "tpot_s", "e2e_s"))
    for gap_us, model, prompt, output, ttft_s, tpot_s, e2e_s in zip(*columns, strict=True):
        at_us += gap_us
        arrivals.append(
            Arrival(
                at_s=at_us * _US,
                model=document["models"][model],
                num_prompt_tokens=prompt,
                max_output_tokens=output,
                slo=Slo(ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=e2e_s),
            )
        )
    return Entry(
        run=document["run"],
        first=document["first"],
        arrivals=tuple(arrivals),
        output_tokens=dict(zip(document["ended"], document["given"], strict=True)),
    )
