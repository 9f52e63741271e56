"""Measuring jobs over real gRPC servers and a real Redis, on workers whose timings are known."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headway.core.capture import CaptureRequest
from headway.core.catalogue import built_in_catalogue
from headway.core.errors import InvalidArgumentError, NotFoundError, UnavailableError
from headway.core.measuring_job import JobState, MeasuringJob
from headway.core.model_profile import ModelProfile, Provenance
from headway.core.unit_programs import UnitPrograms, unit_programs
from headway.profiler.capture.capture import capture
from headway.profiler.jobs.bench_workers import BenchWorkers
from headway.profiler.jobs.jobs import MeasuringJobs
from headway.profiler.jobs.store import JobStore
from headway.profiler.machines import Machines
from headway.profiler.profile_store import ProfileStore
from headway.rpc.convert import from_pb, to_pb
from headway.rpc.peers import Peers
from headway.store.membership import Membership
from headway.store.redis import Database
from headway.v1 import common_pb2, profiler_pb2
from tests.profiler.conftest import ScriptedWorker, serving


@pytest.fixture(scope="module")
def units() -> UnitPrograms:
    request = CaptureRequest(source="zoo:gpt3-1b-small", train=True, with_program=True)
    made = capture(request, report=lambda _: None)
    assert made.graph is not None
    assert made.program is not None
    return unit_programs(made.graph, made.program)


@asynccontextmanager
async def running(database: Database) -> AsyncIterator[MeasuringJobs]:
    """The jobs of one profiler process."""
    async with Peers(Membership(database)).watching() as peers:
        jobs = MeasuringJobs(BenchWorkers(peers), Machines(), JobStore(database), catalogue=built_in_catalogue())
        await jobs.resume()
        yield jobs
        await jobs.stop()


async def start(jobs: MeasuringJobs, units: UnitPrograms, **options: Any) -> MeasuringJob:
    given = {"worker_id": "", "share": 0.5, "longest_s": 10.0} | options
    return await jobs.start(units.subject, list(units.programs.values()), **given)


async def finish(jobs: MeasuringJobs, job_id: str) -> tuple[MeasuringJob, ModelProfile | None]:
    async with asyncio.timeout(30):
        states = [state async for state in jobs.watch(job_id)]
    return states[-1]


async def measure(jobs: MeasuringJobs, units: UnitPrograms, **options: Any) -> ModelProfile:
    job, profile = await finish(jobs, (await start(jobs, units, **options)).job_id)
    assert job.state is JobState.DONE, job.message
    assert profile is not None
    return profile


async def test_every_program_is_measured_once_and_never_again(
    database: Database, worker: ScriptedWorker, units: UnitPrograms
) -> None:
    async with running(database) as jobs:
        profile = await measure(jobs, units)
        assert len(worker.timed) == len(units.programs) == profile.num_measured
        assert {cost.provenance for cost in profile.costs.values()} == {Provenance.MEASURED}
        again = await measure(jobs, units)
        assert (again.num_measured, again.num_cached) == (0, len(units.programs))
        assert again.costs == profile.costs
        assert len(worker.timed) == len(units.programs)


async def test_sums_are_counts_times_seconds(database: Database, worker: ScriptedWorker, units: UnitPrograms) -> None:
    """The worker says a millisecond for each instruction."""
    async with running(database) as jobs:
        profile = await measure(jobs, units)
    operators = [group for group in units.subject.operators if group.phase == "forward"]
    assert profile.phase_s("forward") == pytest.approx(1e-3 * sum(group.count for group in operators))
    whole = units.programs[units.subject.program]
    assert profile.excess == pytest.approx(1e-3 * len(whole.instructions) / profile.passes_s - 1)
    stages = profile.split(2)
    assert [layer for stage in stages for layer in stage] == list(units.subject.layers)


async def test_other_versions_are_other_measurements_and_stale_ones_can_be_forgotten(
    database: Database, worker: ScriptedWorker, units: UnitPrograms
) -> None:
    async with running(database) as jobs:
        before = await measure(jobs, units)
    worker.hardware.software["torch"] = "2"
    async with running(database) as jobs, Peers(Membership(database)).watching() as peers:
        after = await measure(jobs, units)
        assert after.num_cached == 0
        assert after.profile_id != before.profile_id
        profile_store = ProfileStore(database, BenchWorkers(peers))
        assert {summary.profile_id: summary.is_stale for summary in await profile_store.list()} == {
            before.profile_id: True,
            after.profile_id: False,
        }
        assert await profile_store.forget_stale() == (1, len(units.programs))
        assert [summary.profile_id for summary in await profile_store.list()] == [after.profile_id]
        assert await profile_store.forget([after.profile_id]) == 1
        with pytest.raises(NotFoundError, match=after.profile_id):
            await profile_store.forget([after.profile_id])
        assert (await measure(jobs, units)).num_measured == 0


async def test_another_process_goes_on_where_the_first_was_stopped(
    database: Database, worker: ScriptedWorker, units: UnitPrograms
) -> None:
    def note() -> None:
        if len(worker.timed) == 12:
            worker.program_s = 60.0

    worker.on_time = note
    async with running(database) as jobs:
        job = await start(jobs, units)
        async for state, _ in jobs.watch(job.job_id):
            if state.num_done == 12:
                break
    assert len(worker.timed) == 12
    worker.program_s = 0.001
    worker.on_time = lambda: None
    async with running(database) as jobs:
        state, profile = await finish(jobs, job.job_id)
    assert state.state is JobState.DONE
    assert profile is not None
    assert profile.num_measured == len(units.programs)
    assert len(worker.timed) == len(units.programs)  # and again only the one that was running


async def test_a_lost_worker_costs_only_what_it_was_timing(
    database: Database, worker: ScriptedWorker, units: UnitPrograms
) -> None:
    other = ScriptedWorker("worker-1")

    def die() -> None:
        if len(worker.timed) == 5:
            asyncio.get_running_loop().create_task(worker.server.stop(None))

    worker.on_time = die
    async with running(database) as jobs:
        job = await start(jobs, units)
        while len(worker.timed) < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        async with serving(other, database):
            _, profile = await finish(jobs, job.job_id)
    assert profile is not None
    assert all(cost.is_known for cost in profile.costs.values())
    assert len(worker.timed) + len(other.timed) <= len(units.programs) + 2


async def test_a_busy_worker_is_waited_for(database: Database, worker: ScriptedWorker, units: UnitPrograms) -> None:
    worker.num_busy = 2
    async with running(database) as jobs:
        job = await start(jobs, units)
        messages = [state.message async for state, _ in jobs.watch(job.job_id)]
    assert any("serving requests" in message for message in messages)
    assert messages[-1] == ""


@pytest.mark.parametrize("nonsense_s", [math.nan, math.inf, -1.0, 0.0])
async def test_timings_that_cannot_be_fail_the_job_and_name_the_operator(
    database: Database, worker: ScriptedWorker, units: UnitPrograms, nonsense_s: float
) -> None:
    def spoil(response: Any) -> None:
        if worker.timed[-1] == "aten.gelu.default":
            response.seconds = nonsense_s

    worker.timing = spoil
    async with running(database) as jobs:
        state, profile = await finish(jobs, (await start(jobs, units)).job_id)
        assert profile is None
        assert state.state is JobState.FAILED
        assert "worker-0 timed aten.gelu.default" in state.message
        worker.timing = lambda response: None
        assert (await measure(jobs, units)).num_cached > 0


async def test_what_does_not_run_is_named_and_estimated(
    database: Database, worker: ScriptedWorker, units: UnitPrograms
) -> None:
    worker.hardware = type(worker.hardware)(
        device="cpu", name="AMD EPYC", num_threads=2, memory_bytes=2**33, software={"torch": "1"}
    )

    def refuse(response: Any) -> None:
        if worker.timed[-1] == "aten.gelu.default":
            response.seconds, response.fault = 0.0, "it takes 9 GiB of memory, and 1 GiB are free"

    worker.timing = refuse
    async with running(database) as jobs:
        profile = await measure(jobs, units)
        (gelu,) = [group for group in units.subject.operators if group.target == "aten.gelu.default"]
        cost = profile.cost(gelu.program)
        assert cost.note.startswith("it takes 9 GiB")
        assert cost.provenance is Provenance.ESTIMATED
        assert cost.seconds > 0
        assert (await measure(jobs, units)).num_measured == 0


async def test_what_would_take_too_long_is_not_tried(
    database: Database, worker: ScriptedWorker, units: UnitPrograms
) -> None:
    worker.hardware = type(worker.hardware)(
        device="cpu", name="AMD EPYC", num_threads=2, memory_bytes=2**33, software={"torch": "1"}
    )
    async with running(database) as jobs:
        profile = await measure(jobs, units, longest_s=1e-9)
    assert worker.timed == []
    assert {cost.note for cost in profile.costs.values()} == {"estimated to take more than 1e-09 s"}


async def test_a_cancelled_job_keeps_what_it_has_and_starts_anew(
    database: Database, worker: ScriptedWorker, units: UnitPrograms
) -> None:
    def hold() -> None:
        if len(worker.timed) == 5:
            worker.program_s = 60.0

    worker.on_time = hold
    async with running(database) as jobs:
        job = await start(jobs, units)
        async for state, _ in jobs.watch(job.job_id):
            if state.num_done == 5:
                break
        assert (await jobs.cancel(job.job_id)).state is JobState.CANCELLED
        assert [job.state for job in await jobs.list()] == [JobState.CANCELLED]
        worker.program_s = 0.001
        worker.on_time = lambda: None
        assert (await measure(jobs, units)).num_cached == 5


async def test_bad_requests_are_refused(database: Database, worker: ScriptedWorker, units: UnitPrograms) -> None:
    async with running(database) as jobs:
        with pytest.raises(NotFoundError, match="worker-9"):
            await start(jobs, units, worker_id="worker-9")
        with pytest.raises(InvalidArgumentError, match="share"):
            await start(jobs, units, share=0.0)
        for longest_s in (0.0, math.nan):
            with pytest.raises(InvalidArgumentError, match="longest_s"):
                await start(jobs, units, longest_s=longest_s)
        with pytest.raises(InvalidArgumentError, match="not among the programs"):
            await jobs.start(units.subject, [], worker_id="", share=0.5, longest_s=1.0)
        with pytest.raises(NotFoundError, match="cafe"):
            await anext(jobs.watch("cafe"))


async def test_without_a_worker_there_is_nothing_to_measure_on(database: Database, units: UnitPrograms) -> None:
    async with running(database) as jobs:
        with pytest.raises(UnavailableError, match="No worker"):
            await start(jobs, units)


async def test_over_grpc_a_job_is_started_watched_listed_and_its_profile_forgotten(
    stub: Any, worker: ScriptedWorker, units: UnitPrograms
) -> None:
    request = profiler_pb2.StartMeasuringRequest(
        subject=to_pb(units.subject, profiler_pb2.Subject),
        programs=[to_pb(program, common_pb2.Program) for program in units.programs.values()],
        share=1.0,
        longest_s=10.0,
    )
    job = (await stub.StartMeasuring(request)).job
    watching = stub.WatchMeasuring(profiler_pb2.WatchMeasuringRequest(job_id=job.job_id), timeout=30)
    last = [response async for response in watching][-1]
    profile = from_pb(last.profile, ModelProfile)
    assert profile.subject == units.subject
    assert [each.state for each in (await stub.ListMeasuring(profiler_pb2.ListMeasuringRequest())).jobs] == ["done"]
    got = await stub.GetModelProfile(profiler_pb2.GetModelProfileRequest(profile_id=profile.profile_id))
    assert from_pb(got.profile, ModelProfile) == profile
    listed = (await stub.ListModelProfiles(profiler_pb2.ListModelProfilesRequest())).profiles
    assert [each.profile_id for each in listed] == [profile.profile_id]
    await stub.ForgetProfiles(profiler_pb2.ForgetProfilesRequest(profile_ids=[profile.profile_id]))
    assert not (await stub.ListModelProfiles(profiler_pb2.ListModelProfilesRequest())).profiles
