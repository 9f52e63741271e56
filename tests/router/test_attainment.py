"""Counters that survive a restart, and an absence, of Redis and of the router."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from headway.core.errors import UnavailableError
from headway.core.slo import Slo
from headway.router.attainment import Attainment, ModelAttainment
from headway.router.lease import LeaseOutcome, Release
from headway.store.embedded import EmbeddedRedis
from headway.store.redis import Database
from headway.store.schema import ATTAINMENT
from tests.router.test_lease_table import make_lease

LEASE = replace(make_lease("lease"), slo=Slo(ttft_s=1.0))
FAST = Release(lease_id="lease", outcome=LeaseOutcome.COMPLETE, ttft_s=0.5, tpot_s=0.1)


def total(
    num_met: int = 0, num_missed: int = 0, num_rejected: int = 0, num_completed: int = 0, num_foretold: int = 0
) -> ModelAttainment:
    return ModelAttainment(
        model="llama",
        num_met=num_met,
        num_missed=num_missed,
        num_rejected=num_rejected,
        num_completed=num_completed,
        num_foretold_met=num_foretold,
        num_foretold_missed=num_rejected,
    )


@pytest.mark.parametrize(
    ("release", "counted"),
    [
        (FAST, total(num_met=1, num_completed=1)),
        (replace(FAST, ttft_s=1.5), total(num_missed=1, num_completed=1)),
        (replace(FAST, slo=Slo(ttft_s=0.1)), total(num_missed=1, num_completed=1)),
        (replace(FAST, outcome=LeaseOutcome.ERROR), total(num_missed=1)),
        (replace(FAST, outcome=LeaseOutcome.CANCELLED), total()),
        (replace(FAST, outcome=LeaseOutcome.MOVED), total()),
    ],
)
def test_each_end_of_a_request_counts_as_what_it_is(
    database: Database, release: Release, counted: ModelAttainment
) -> None:
    attainment = Attainment(database)
    attainment.count_release(LEASE, release)
    assert attainment.totals == (() if counted == total() else (counted,))


def test_a_request_without_an_slo_only_counts_as_completed(database: Database) -> None:
    attainment = Attainment(database)
    attainment.count_release(replace(LEASE, slo=Slo()), FAST)
    attainment.count_release(replace(LEASE, slo=Slo()), replace(FAST, outcome=LeaseOutcome.ERROR))
    assert attainment.totals == (total(num_completed=1),)


async def test_counts_go_to_redis_once_and_outlive_the_router(database: Database) -> None:
    first = Attainment(database)
    first.count_release(LEASE, FAST)
    first.count_rejection("llama")
    await first.flush()
    await first.flush()
    first.count_release(LEASE, replace(FAST, ttft_s=9.0))
    await first.flush()
    assert await database.redis.hgetall(ATTAINMENT.key(database.namespace, "llama")) == {
        "met": "1",
        "rejected": "1",
        "missed": "1",
        "completed": "2",
        "foretold_missed": "1",
    }
    second = Attainment(database)
    second.count_rejection("llama")
    await second.flush()
    assert second.totals == (total(num_met=1, num_missed=1, num_rejected=2, num_completed=2),)


async def test_two_flushes_at_once_write_each_count_once(database: Database) -> None:
    attainment = Attainment(database)
    attainment.count_rejection("llama")
    await asyncio.gather(attainment.flush(), attainment.flush())
    assert await database.redis.hgetall(ATTAINMENT.key(database.namespace, "llama")) == {
        "rejected": "1",
        "foretold_missed": "1",
    }


async def test_counts_wait_for_redis_to_come_back(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path)
    server.start()
    database = Database.connect(server.url, namespace="test")
    attainment = Attainment(database)
    try:
        attainment.count_release(LEASE, FAST)
        await attainment.flush()
        server.stop()
        attainment.count_release(LEASE, FAST)
        with pytest.raises(UnavailableError):
            await attainment.flush()
        attainment.count_rejection("llama")
        assert attainment.totals == (total(num_met=2, num_rejected=1, num_completed=2),)
        server.start()
        await attainment.flush()
        stored = Attainment(database)
        await stored.flush()
        assert stored.totals == (total(num_met=2, num_rejected=1, num_completed=2),)
    finally:
        server.stop()
        await database.close()


def test_what_was_predicted_counts_beside_what_came(database: Database) -> None:
    """Of requests that ended, by the prediction on their lease; of those without a prediction nothing."""
    attainment = Attainment(database)
    hopeful, hopeless = replace(LEASE, ttft_s=0.5), replace(LEASE, ttft_s=1.5)
    for lease in (hopeful, hopeful, hopeless, LEASE):
        attainment.count_release(lease, FAST)
    attainment.count_release(hopeful, replace(FAST, outcome=LeaseOutcome.ERROR))
    attainment.count_release(hopeful, replace(FAST, outcome=LeaseOutcome.CANCELLED))
    (counted,) = attainment.totals
    assert (counted.num_foretold_met, counted.num_foretold_missed) == (3, 1)
