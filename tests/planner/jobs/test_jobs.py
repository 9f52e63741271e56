"""Search jobs in process, over a real Redis and over files: what is told, kept and refused."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.core.errors import CancelledError, InvalidArgumentError, NotFoundError, UnavailableError
from headway.core.search_job import SearchJob, SearchState, SearchWork
from headway.planner.jobs.jobs import SearchJobs
from headway.planner.jobs.store import SearchStore
from headway.store.embedded import EmbeddedRedis
from headway.store.redis import Database
from tests.planner.jobs.scripted import PATIENCE_S, ScriptedSearches, until, work_of


@pytest.fixture(params=["redis", "files"])
def store(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> SearchStore:
    return SearchStore.in_redis(database) if request.param == "redis" else SearchStore.in_files(tmp_path / "searches")


@pytest.fixture
def searches() -> ScriptedSearches:
    return ScriptedSearches()


@pytest.fixture
async def jobs(store: SearchStore, searches: ScriptedSearches) -> AsyncIterator[SearchJobs]:
    jobs = SearchJobs(store, search=searches.search)
    yield jobs
    await jobs.close()


async def end_of(jobs: SearchJobs, job_id: str) -> SearchJob:
    async with asyncio.timeout(PATIENCE_S):
        return [job async for job in jobs.watch(job_id)][-1]


async def test_a_watcher_hears_of_the_best_and_of_the_end(jobs: SearchJobs, searches: ScriptedSearches) -> None:
    job = await jobs.start(work_of("a"), title="four models")
    told: list[SearchJob] = []
    async with asyncio.timeout(PATIENCE_S):
        async for each in jobs.watch(job.job_id):
            told.append(each)
            if each.state is SearchState.RUNNING and not each.progress.best_figure:
                await until(lambda: bool(searches.running))
                searches.running[0].find(7)
            elif each.progress.best_figure and not each.state.has_ended:
                searches.running[0].finish()
    assert told[-1].state is SearchState.DONE
    assert told[-1].title == "four models"
    assert told[-1].progress.best_figure == "7 points"
    assert 0 < told[-1].started_at_s <= told[-1].ended_at_s
    assert await jobs.result(told[-1]) == {"found": {"value": 7}}


async def test_other_limits_and_versions_are_other_searches_and_other_times_are_not() -> None:
    work = work_of("a")
    assert work.job_id == work_of("a", created_at_s=9.0).job_id
    others = [work_of("b"), work_of("a", time_limit_s=1.0), SearchWork(kind="frontier", request=work.request)]
    others.append(SearchWork(kind="placement", request=work.request, version="2"))
    assert len({each.job_id for each in (work, *others)}) == 5


async def test_so_many_run_at_once_and_the_others_wait_for_their_turn(
    store: SearchStore, searches: ScriptedSearches
) -> None:
    jobs = SearchJobs(store, search=searches.search, num_at_once=2)
    started = [await jobs.start(work_of(name)) for name in "abc"]
    await until(lambda: len(searches.running) == 2)
    assert [job.state for job in reversed(await jobs.list())] == ["running", "running", "queued"]
    searches.running[0].finish()
    assert (await end_of(jobs, started[0].job_id)).state is SearchState.DONE
    await until(lambda: [each.job_id for each in searches.running] == [job.job_id for job in started[1:]])
    await jobs.close()


async def test_one_that_is_stopped_before_it_found_anything_says_so(
    jobs: SearchJobs, searches: ScriptedSearches
) -> None:
    job = await jobs.start(work_of("a"))
    await until(lambda: bool(searches.running))
    await jobs.stop(job.job_id)
    ended = await end_of(jobs, job.job_id)
    assert ended.state is SearchState.STOPPED
    with pytest.raises(CancelledError, match="before it found"):
        await jobs.result(ended)


async def test_a_crash_is_the_fault_of_that_job_alone(jobs: SearchJobs, searches: ScriptedSearches) -> None:
    first, second = await jobs.start(work_of("a")), await jobs.start(work_of("b"))
    await until(lambda: bool(searches.running))
    searches.running[0].crash()
    ended = await end_of(jobs, first.job_id)
    assert ended.state is SearchState.FAILED
    with pytest.raises(UnavailableError, match="SIGKILL"):
        await jobs.result(ended)
    await until(lambda: bool(searches.running))
    searches.running[0].finish()
    assert (await end_of(jobs, second.job_id)).state is SearchState.DONE


async def test_a_result_waits_for_a_store_that_is_away(tmp_path: Path, searches: ScriptedSearches) -> None:
    redis = EmbeddedRedis(tmp_path / "redis")
    redis.start()
    database = Database.connect(redis.url, namespace="test")
    jobs = SearchJobs(SearchStore.in_redis(database), search=searches.search)
    job = await jobs.start(work_of("a"))
    await until(lambda: bool(searches.running))
    redis.stop()
    searches.running[0].find(3)
    searches.running[0].finish()
    await until(lambda: not searches.running)
    with pytest.raises(UnavailableError):
        await jobs.start(work_of("b"))
    redis.start()
    ended = await end_of(jobs, job.job_id)
    assert ended.state is SearchState.DONE
    assert await jobs.result(ended) == {"found": {"value": 3}}
    await jobs.close()
    await database.close()
    redis.stop()


async def test_one_whose_work_is_lost_ends_with_what_it_had(store: SearchStore, searches: ScriptedSearches) -> None:
    before = SearchJobs(store, search=searches.search)
    job = await before.start(work_of("a"))
    await until(lambda: bool(searches.running))
    searches.running[0].find(5)
    await until(lambda: before._running[job.job_id].job.progress.best is not None)
    await before.close()
    await store.works.delete(job.job_id)
    after = SearchJobs(store, search=searches.search)
    await after.resume()
    ended = await end_of(after, job.job_id)
    assert ended.state is SearchState.FAILED
    assert ended.progress.best_figure == "5 points"
    assert await after.best(ended) == {"value": 5}


async def test_only_the_latest_hundred_are_kept(jobs: SearchJobs, searches: ScriptedSearches) -> None:
    for number in range(102):
        job = await jobs.start(work_of(str(number)))
        await until(lambda: bool(searches.running))
        searches.running[0].finish()
        await end_of(jobs, job.job_id)
    assert len(await jobs.list()) == 100
    with pytest.raises(NotFoundError):
        await jobs.get(work_of("0").job_id)
    assert await jobs.result(await jobs.get(job.job_id)) == {"found": None}


async def test_those_that_ended_before_the_clock_was_set_back_go_first(
    store: SearchStore, jobs: SearchJobs, searches: ScriptedSearches
) -> None:
    """By the clock as it is now, all of them are yet to end."""
    ahead_s = time.time() + 7200.0
    for number in range(100):
        ended = SearchJob(
            job_id=f"before-{number}",
            kind="s",
            title="",
            created_at_s=ahead_s,
            state=SearchState.DONE,
            ended_at_s=ahead_s,
        )
        await store.put(ended)
    for name in ("a", "b"):
        job = await jobs.start(work_of(name))
        await until(lambda: bool(searches.running))
        searches.running[0].finish()
        await end_of(jobs, job.job_id)
    known = {job.job_id for job in await jobs.list()}
    assert len(known) == 100
    for name in ("a", "b"):
        assert await jobs.result(await jobs.get(work_of(name).job_id)) == {"found": None}


async def test_what_nobody_knows_is_refused(jobs: SearchJobs) -> None:
    with pytest.raises(InvalidArgumentError, match="no search of the kind 'tea'"):
        await jobs.start(SearchWork(kind="tea", request={}))
    for call in (jobs.get("placement-0"), jobs.stop("placement-0"), anext(jobs.watch("placement-0"))):
        with pytest.raises(NotFoundError, match="headway plan jobs"):
            await call
