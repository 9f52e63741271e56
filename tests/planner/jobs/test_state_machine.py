"""Search jobs under random use, restarts of the planner included, against a plain account of them."""

import asyncio
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from headway.core.errors import HeadwayError
from headway.core.search_job import SearchState
from headway.planner.jobs.jobs import SearchJobs
from headway.planner.jobs.store import SearchStore
from headway.store.redis import Database
from tests.planner.jobs.scripted import ScriptedSearch, ScriptedSearches, until, work_of

T = TypeVar("T")

NAMES = ("a", "b", "c")
WORKS = {name: work_of(name) for name in NAMES}


@dataclass(slots=True)
class Account:
    """What a job is to be."""

    state: SearchState
    best: dict[str, Any] | None = None
    result: dict[str, Any] | None = None


class SearchJobsMachine(RuleBasedStateMachine):
    """One search at a time; `line` has the names of those that wait and, first, of the one that runs."""

    def __init__(self, redis_url: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.database = Database.connect(redis_url, namespace=f"test-{uuid.uuid4().hex[:12]}")
        self.accounts: dict[str, Account] = {}
        self.line: list[str] = []
        self.open()

    def open(self) -> None:
        self.searches = ScriptedSearches()
        self.jobs = SearchJobs(SearchStore.in_redis(self.database), search=self.searches.search)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @property
    def running(self) -> ScriptedSearch:
        (search,) = self.searches.running
        return search

    @rule(name=st.sampled_from(NAMES), made_at_s=st.floats(0, 1e9), anew=st.booleans())
    def start(self, name: str, made_at_s: float, anew: bool) -> None:
        job = self.wait(self.jobs.start(work_of(name, created_at_s=made_at_s), anew=anew))
        assert job.job_id == WORKS[name].job_id
        account = self.accounts.get(name)
        if name in self.line or (account is not None and account.state is SearchState.DONE and not anew):
            return
        best = None if account is None or anew else account.best
        self.accounts[name] = Account(SearchState.QUEUED, best=best)
        self.line.append(name)

    @precondition(lambda self: self.line)
    @rule(value=st.integers(0, 100))
    def find_better(self, value: int) -> None:
        self.running.find(value)
        best = {"value": value}
        self.accounts[self.line[0]].best = best
        job_id = WORKS[self.line[0]].job_id
        self.wait(until(lambda: self.jobs._running[job_id].job.progress.best == best))

    @precondition(lambda self: self.line)
    @rule()
    def finish(self) -> None:
        account = self.accounts[self.line[0]]
        self.running.finish()
        self.end(self.line[0], SearchState.DONE, {"found": account.best})
        account.best = None

    @precondition(lambda self: self.line)
    @rule()
    def crash(self) -> None:
        self.running.crash()
        self.end(self.line[0], SearchState.FAILED, None)

    @rule(name=st.sampled_from(NAMES), give_up=st.booleans())
    def stop(self, name: str, give_up: bool) -> None:
        if name not in self.accounts:
            return
        self.wait(self.jobs.stop(WORKS[name].job_id, give_up=give_up))
        if name not in self.line:
            return
        best = self.accounts[name].best
        runs = name == self.line[0]
        self.end(name, SearchState.STOPPED, {"found": best} if runs and best is not None and not give_up else None)

    @rule()
    def restart(self) -> None:
        """As after a kill: closing the jobs writes nothing."""
        self.wait(self.jobs.close())
        self.open()
        self.wait(self.jobs.resume())

    def end(self, name: str, state: SearchState, result: dict[str, Any] | None) -> None:
        self.line.remove(name)
        account = self.accounts[name]
        account.state, account.result = state, result
        self.wait(until(lambda: WORKS[name].job_id not in self.jobs._running))

    @invariant()
    def all_is_as_it_should_be(self) -> None:
        if self.line:
            self.accounts[self.line[0]].state = SearchState.RUNNING
            self.wait(until(lambda: [each.job_id for each in self.searches.running] == [WORKS[self.line[0]].job_id]))
            assert self.running.best == self.accounts[self.line[0]].best
        jobs = {job.job_id: job for job in self.wait(self.jobs.list())}
        assert {job.job_id: job.state for job in jobs.values()} == {
            WORKS[name].job_id: account.state for name, account in self.accounts.items()
        }
        for name, account in self.accounts.items():
            job = jobs[WORKS[name].job_id]
            assert self.wait(self.jobs.best(job)) == account.best
            if account.state.has_ended:
                assert self.wait(self._result(job.job_id)) == account.result

    async def _result(self, job_id: str) -> dict[str, Any] | None:
        try:
            return await self.jobs.result(await self.jobs.get(job_id))
        except HeadwayError:
            return None

    def teardown(self) -> None:
        self.wait(self.jobs.close())
        self.wait(self.database.close())
        self.runner.close()


def test_jobs_keep_what_they_had_whatever_happens(redis_url: str) -> None:
    run_state_machine_as_test(
        lambda: SearchJobsMachine(redis_url),
        settings=settings(max_examples=40, stateful_step_count=25, deadline=None, derandomize=True),
    )
