"""Counts how many requests met their SLO; the counts are added up in Redis."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import cast

from headway.router.lease import Lease, LeaseOutcome, Release
from headway.router.prediction import predicted
from headway.store.counts import add_counts, read_counts
from headway.store.redis import Database, redis_faults
from headway.store.schema import ATTAINMENT

_MET, _MISSED, _REJECTED, _COMPLETED = "met", "missed", "rejected", "completed"
_PREDICTED_MET, _PREDICTED_MISSED = "foretold_met", "foretold_missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAttainment:
    """Requests of one model since the counters began; all but the completed ones had an SLO.

    Attributes:
        num_foretold_met, num_foretold_missed: what the router had predicted, where it could.
    """

    model: str
    num_met: int
    num_missed: int
    num_rejected: int
    num_completed: int
    num_foretold_met: int
    num_foretold_missed: int


class Attainment:
    """Counts at once and writes in batches, so that Redis may be away for a while."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stored: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._unwritten: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._is_loaded = False
        self._writing = asyncio.Lock()

    @property
    def totals(self) -> tuple[ModelAttainment, ...]:
        """Returns the attainment of each model: the counts in Redis and those still to be written."""
        return tuple(self._total(model) for model in sorted({*self._stored, *self._unwritten}))

    def count_release(self, lease: Lease, release: Release) -> None:
        """Counts a request that ended. One that its client cancelled neither met nor missed its SLO."""
        slo = release.slo or lease.slo
        if release.outcome is LeaseOutcome.COMPLETE:
            self._unwritten[lease.model][_COMPLETED] += 1
            if slo:
                is_met = slo.is_met(ttft_s=release.ttft_s, tpot_s=release.tpot_s, e2e_s=release.e2e_s)
                self._unwritten[lease.model][_MET if is_met else _MISSED] += 1
        elif release.outcome is LeaseOutcome.ERROR and slo:
            self._unwritten[lease.model][_MISSED] += 1
        if (is_predicted := predicted(lease, release)) is not None:
            self._unwritten[lease.model][_PREDICTED_MET if is_predicted else _PREDICTED_MISSED] += 1

    def count_rejection(self, model: str) -> None:
        """Counts a request with an SLO that was refused."""
        self._unwritten[model][_REJECTED] += 1
        self._unwritten[model][_PREDICTED_MISSED] += 1

    async def flush(self) -> None:
        """Writes what has been counted since the last time; UnavailableError leaves it for the next."""
        async with self._writing:
            if not self._is_loaded:
                await self._load()
            for model, counts in list(self._unwritten.items()):
                if written := +counts:
                    await self._add(model, written)
                    counts.subtract(written)

    async def _load(self) -> None:
        redis, prefix = self._database.redis, ATTAINMENT.key(self._database.namespace, "")
        with redis_faults():
            async for key in redis.scan_iter(match=f"{prefix}*", count=1000):
                texts = await cast("Awaitable[dict[str, str]]", redis.hgetall(key))
                self._stored[key.removeprefix(prefix)] = Counter(read_counts(texts))
        self._is_loaded = True

    async def _add(self, model: str, counts: Counter[str]) -> None:
        key = ATTAINMENT.key(self._database.namespace, model)
        with redis_faults():
            self._stored[model] = Counter(await add_counts(self._database.redis, key, counts))

    def _total(self, model: str) -> ModelAttainment:
        stored, unwritten = self._stored[model], self._unwritten[model]
        return ModelAttainment(
            model=model,
            num_met=stored[_MET] + unwritten[_MET],
            num_missed=stored[_MISSED] + unwritten[_MISSED],
            num_rejected=stored[_REJECTED] + unwritten[_REJECTED],
            num_completed=stored[_COMPLETED] + unwritten[_COMPLETED],
            num_foretold_met=stored[_PREDICTED_MET] + unwritten[_PREDICTED_MET],
            num_foretold_missed=stored[_PREDICTED_MISSED] + unwritten[_PREDICTED_MISSED],
        )
