"""Profiling a worker over a real gRPC server, with profiles in a real Redis."""

import asyncio
import math
import random
from typing import Any

import pytest

from headway.core.errors import FailedPreconditionError, InternalError, NotFoundError, UnavailableError
from headway.core.latency import LatencyModel
from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig
from headway.core.profile import Profile, profile_id
from headway.profiler.service import ProfilerService, ProfilingProgress
from headway.store.documents import Documents
from headway.store.redis import Database
from tests.profiler.conftest import ScriptedWorker, serving


async def run_profile(service: ProfilerService, spec: ModelSpec, *, force: bool = False) -> list[ProfilingProgress]:
    return [progress async for progress in service.profile(spec, worker_id="worker-0", force=force)]


async def test_profiling_finds_the_law_of_the_worker_and_stores_it(
    service: ProfilerService, worker: Any, spec: ModelSpec, law: LatencyModel, profiles: Documents[Profile]
) -> None:
    steps = await run_profile(service, spec)

    profile = steps[-1].profile
    assert profile is not None
    assert profile.profile_id == profile_id(spec, worker.hardware)
    assert profile.latency.per_prefill_token_s == pytest.approx(law.per_prefill_token_s, rel=1e-4)
    assert profile.latency.per_context_token_s == pytest.approx(law.per_context_token_s, rel=1e-3)
    assert profile.latency.relative_error < 1e-4
    assert [step.num_done for step in steps[:-1]] == list(range(1, steps[0].num_total + 1))
    assert await profiles.get(profile.profile_id) == profile
    assert await service.list() == [profile]
    assert await service.get(profile.profile_id) == profile


async def test_a_group_of_two_has_a_profile_of_its_own(service: ProfilerService, worker: Any, spec: ModelSpec) -> None:
    alone = (await run_profile(service, spec))[-1].profile
    worker.parallel = ParallelConfig(tp=2)
    together = (await run_profile(service, spec))[-1]
    assert not together.reused
    assert together.profile is not None
    assert alone is not None
    assert together.profile.profile_id == profile_id(spec, worker.hardware, worker.parallel) != alone.profile_id


async def test_neighbours_compute_meanwhile_where_that_is_asked_for(
    service: ProfilerService, worker: ScriptedWorker, spec: ModelSpec, database: Database
) -> None:
    async with serving(neighbour := ScriptedWorker("worker-1"), database):
        worker.wait_s = neighbour.wait_s = 0.04
        await run_profile(service, spec)
        assert worker.asked
        assert not neighbour.asked
        asked, worker.asked = worker.asked, []
        work = service.profile(spec, worker_id="worker-0", force=True, beside_others=True)
        profile = [progress async for progress in work][-1].profile
    assert profile is not None
    assert set(worker.asked) == set(asked)
    assert neighbour.asked
    assert set(neighbour.asked) <= set(asked)


async def test_a_neighbour_that_serves_or_goes_away_delays_nothing(
    service: ProfilerService, worker: ScriptedWorker, spec: ModelSpec, database: Database
) -> None:
    async with serving(neighbour := ScriptedWorker("worker-1"), database):
        worker.wait_s, neighbour.num_busy = 0.04, 5
        work = service.profile(spec, worker_id="worker-0", force=False, beside_others=True)
        async for progress in work:
            if progress.num_done == 8:
                assert neighbour.server is not None
                await neighbour.server.stop(None)
        assert progress.profile is not None
    assert 0 < len(neighbour.asked) < len(worker.asked)


async def test_a_profile_is_reused_when_nothing_changed(service: ProfilerService, worker: Any, spec: ModelSpec) -> None:
    first = (await run_profile(service, spec))[-1].profile
    num_asked = len(worker.asked)
    again = await run_profile(service, spec)
    assert [(step.reused, step.profile) for step in again] == [(True, first)]
    assert len(worker.asked) == num_asked


async def test_new_software_means_a_new_profile(service: ProfilerService, worker: Any, spec: ModelSpec) -> None:
    await run_profile(service, spec)
    worker.hardware.software["torch"] = "2"
    again = await run_profile(service, spec)
    assert not again[-1].reused
    assert len(await service.list()) == 2


async def test_force_measures_again(service: ProfilerService, worker: Any, spec: ModelSpec) -> None:
    await run_profile(service, spec)
    num_asked = len(worker.asked)
    await run_profile(service, spec, force=True)
    assert len(worker.asked) == 2 * num_asked


async def test_a_busy_worker_is_waited_for(service: ProfilerService, worker: Any, spec: ModelSpec) -> None:
    worker.num_busy = 3
    assert (await run_profile(service, spec))[-1].profile is not None


async def test_a_worker_that_is_never_idle_is_given_up(service: ProfilerService, worker: Any, spec: ModelSpec) -> None:
    worker.num_busy = 10**6
    with pytest.raises(UnavailableError, match="stopped after 0 of"):
        await run_profile(service, spec)


async def test_a_worker_lost_midway_is_a_clean_error_and_the_next_attempt_goes_on(
    service: ProfilerService, worker: Any, spec: ModelSpec
) -> None:
    def lose() -> None:
        if len(worker.asked) == 10:
            worker.num_busy = 10**6

    worker.on_measure = lose
    with pytest.raises(UnavailableError, match=r"stopped after 3 of \d+ points"):
        await run_profile(service, spec)
    assert await service.list() == []

    worker.num_busy, num_asked = 0, len(worker.asked)
    steps = await run_profile(service, spec)
    assert steps[-1].profile is not None
    assert len(worker.asked) - num_asked == 3 * (steps[0].num_total - 3)


async def test_a_dead_worker_is_reported_as_lost(service: ProfilerService, worker: Any, spec: ModelSpec) -> None:
    def die() -> None:
        if len(worker.asked) == 7:
            asyncio.get_running_loop().create_task(worker.server.stop(None))

    worker.on_measure = die
    with pytest.raises(UnavailableError, match="Profiling worker-0 stopped after"):
        await run_profile(service, spec)


@pytest.mark.parametrize("nonsense_s", [math.nan, math.inf, -1.0, 0.0])
async def test_timings_that_cannot_be_are_refused(
    service: ProfilerService, worker: Any, spec: ModelSpec, nonsense_s: float
) -> None:
    worker.law = lambda request: nonsense_s
    with pytest.raises(InternalError, match="timed a step at"):
        await run_profile(service, spec)
    assert await service.list() == []


async def test_a_model_swapped_in_midway_spoils_the_profile(
    service: ProfilerService, worker: Any, spec: ModelSpec
) -> None:
    def swap() -> None:
        worker.plan_id = "plan-2"

    worker.on_measure = swap
    with pytest.raises(FailedPreconditionError, match="another model"):
        await run_profile(service, spec)
    assert await service.list() == []


async def test_a_worker_without_a_model_is_refused(service: ProfilerService, worker: Any, spec: ModelSpec) -> None:
    worker.model = ""
    with pytest.raises(FailedPreconditionError, match="no model loaded"):
        await run_profile(service, spec)


async def test_an_unknown_worker_or_profile_is_not_found(service: ProfilerService, spec: ModelSpec) -> None:
    with pytest.raises(NotFoundError, match="worker-9"):
        await anext(service.profile(spec, worker_id="worker-9", force=False))
    with pytest.raises(NotFoundError, match="cafe"):
        await service.get("cafe")


async def test_what_a_busy_machine_slowed_down_is_measured_again(
    service: ProfilerService, worker: Any, spec: ModelSpec, law: LatencyModel
) -> None:
    generator, quiet = random.Random(1), worker.law

    def disturbed(request: Any) -> float:
        slowdown = generator.uniform(1, 10) if len(worker.asked) < 54 else 1.0
        return float(slowdown * quiet(request))

    worker.law = disturbed
    steps = await run_profile(service, spec)
    profile = steps[-1].profile
    assert profile is not None
    assert profile.latency.per_prefill_token_s == pytest.approx(law.per_prefill_token_s, rel=1e-3)
    assert profile.latency.relative_error < 0.01
    assert steps[-1].num_done == steps[-1].num_total == 2 * len(profile.measurements)


async def test_two_callers_measure_once(service: ProfilerService, worker: Any, spec: ModelSpec) -> None:
    first, second = await asyncio.gather(run_profile(service, spec), run_profile(service, spec))
    assert {first[-1].reused, second[-1].reused} == {False, True}
    assert len(set(worker.asked)) * 3 == len(worker.asked)


async def test_a_caller_that_leaves_does_not_block_the_next(
    service: ProfilerService, worker: Any, spec: ModelSpec
) -> None:
    worker.num_busy = 10**6
    caller = asyncio.create_task(run_profile(service, spec))
    await asyncio.sleep(0.2)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    worker.num_busy = 0
    assert (await run_profile(service, spec))[-1].profile is not None
