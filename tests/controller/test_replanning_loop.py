"""When the loop re-plans, by decisions in a real Redis; what re-planning does is scripted."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from headway.controller.replanning import Replanning
from headway.controller.replanning_loop import ReplanningLoop
from headway.core.replanning import ReplanningDecision, ReplanningPolicy, ReplanningVerdict
from headway.core.search_progress import SearchProgress
from headway.rpc.tasks import end_tasks
from headway.store.redis import Database
from headway.store.replanning import ReplanningStore

HOUR_S = 3600.0
POLICY = ReplanningPolicy(
    every_s=HOUR_S,
    window_s=HOUR_S,
    min_gain=0.01,
    time_limit_s=1.0,
    slo_scale=5.0,
    models=(),
    profiles=(),
    deployments=(),
)


def decision_at(seconds: float) -> ReplanningDecision:
    return ReplanningDecision(decided_at_s=seconds, verdict=ReplanningVerdict.KEPT, reason="")


class Scripted:
    """Attributes: num_runs: how often it was run."""

    def __init__(self) -> None:
        self.num_runs = 0

    async def run(
        self, how: ReplanningPolicy, *, dry_run: bool
    ) -> AsyncGenerator[SearchProgress | ReplanningDecision, None]:
        self.num_runs += 1
        yield decision_at(time.time())


@pytest.fixture
def store(database: Database) -> ReplanningStore:
    return ReplanningStore(database)


@pytest.fixture
def replanning() -> Scripted:
    return Scripted()


def loop_over(store: ReplanningStore, replanning: Scripted) -> ReplanningLoop:
    return ReplanningLoop(store, replanning=cast("Replanning", replanning), is_ready=lambda: True)


async def test_it_counts_from_the_last_decision_also_of_an_earlier_controller(
    store: ReplanningStore, replanning: Scripted
) -> None:
    await store.set_duty(POLICY)
    decided_at_s = time.time() - 60.0
    await store.add(decision_at(decided_at_s))
    assert (await loop_over(store, replanning).status()).next_at_s == decided_at_s + HOUR_S


async def test_a_policy_that_is_set_is_followed_at_once_and_only_once(
    store: ReplanningStore, replanning: Scripted, until: Any
) -> None:
    await store.add(decision_at(time.time()))
    loop = loop_over(store, replanning)
    await loop.set(POLICY)
    assert (await loop.status()).next_at_s <= time.time()
    await check_that_it_runs_once(loop, store, replanning, until)


@pytest.mark.parametrize("is_asked", [False, True])
async def test_it_does_not_wait_for_a_time_that_was_before_the_clock_was_set_back(
    store: ReplanningStore, replanning: Scripted, until: Any, *, is_asked: bool
) -> None:
    """By the clock as it is now, the last decision is yet to come in two hours."""
    await store.set_duty(POLICY)
    await store.add(decision_at(time.time() + 2 * HOUR_S))
    loop = loop_over(store, replanning)
    if is_asked:
        await loop.set(POLICY)
    assert (await loop.status()).next_at_s <= time.time()
    await check_that_it_runs_once(loop, store, replanning, until)


async def check_that_it_runs_once(
    loop: ReplanningLoop, store: ReplanningStore, replanning: Scripted, until: Any
) -> None:
    num_before = len(await store.decisions())
    keeping = asyncio.create_task(loop.keep())

    async def has_decided() -> bool:
        return len(await store.decisions()) > num_before

    await until(has_decided, what="a decision")
    await end_tasks([keeping])
    assert replanning.num_runs == 1
    [last, *_] = await store.decisions()
    assert (await loop.status()).next_at_s == last.decided_at_s + HOUR_S
