"""Searches of a real planner process, in real child processes, which are killed in the middle of them."""

import json
from collections.abc import Callable

import psutil

from headway.core.codec import from_document, to_document
from headway.core.placement_problem import PlacementProblem
from headway.core.placement_search import BestPlacement, PlacementSearch
from headway.core.plan.document import plan_from_document, to_plan_document
from headway.core.plan.placement import PlacementPlan
from headway.planner.certify.placement import find_placement_violations
from headway.v1 import planner_pb2_grpc, search_pb2
from tests.planner.jobs.conftest import PlannerProcess, wait_until_gone


def request_of(problem: PlacementProblem, *, processes: int | None = None) -> search_pb2.StartSearchRequest:
    search = PlacementSearch(problem=problem, processes=processes)
    return search_pb2.StartSearchRequest(kind="placement", request_json=json.dumps(to_document(search)))


async def watch(
    stub: "planner_pb2_grpc.PlannerServiceAsyncStub",
    job_id: str,
    *,
    until: Callable[[search_pb2.SearchJob], bool] = lambda _: False,
) -> search_pb2.WatchSearchResponse:
    """Watches until the job is as wanted, or has ended."""
    response = None
    async for response in stub.WatchSearch(search_pb2.WatchSearchRequest(job_id=job_id)):
        if until(response.job):
            break
    assert response is not None
    return response


def has_best(job: search_pb2.SearchJob) -> bool:
    return bool(job.progress.best_figure)


async def best_of(stub: "planner_pb2_grpc.PlannerServiceAsyncStub", job_id: str) -> BestPlacement:
    response = await stub.GetSearch(search_pb2.GetSearchRequest(job_id=job_id))
    return from_document(BestPlacement, json.loads(response.best_json))


async def test_a_search_ends_with_a_plan_and_is_known_from_then_on(
    planner: PlannerProcess, short_problem: PlacementProblem
) -> None:
    request = request_of(short_problem)
    async with planner.stub() as stub:
        job = (await stub.StartSearch(request)).job
        assert job.state == "queued"
        last = await watch(stub, job.job_id)
        plan = plan_from_document(PlacementPlan, json.loads(last.result_json))
        assert last.job.state == "done"
        assert plan.is_complete
        assert plan.problem == short_problem
    planner.kill()
    planner.start()
    async with planner.stub() as stub:
        again = (await stub.StartSearch(request)).job
        assert again.state == "done"
        assert json.loads((await watch(stub, again.job_id)).result_json) == to_plan_document(plan)
        assert planner.children() == []


async def test_a_child_that_is_killed_is_a_fault_of_its_job_and_the_next_goes_on(
    planner: PlannerProcess, long_problem: PlacementProblem
) -> None:
    request = request_of(long_problem)
    async with planner.stub() as stub:
        job_id = (await stub.StartSearch(request)).job.job_id
        await watch(stub, job_id, until=has_best)
        (child,) = planner.children()
        child.kill()
        last = await watch(stub, job_id)
        assert (last.job.state, last.result_json) == ("failed", "")
        assert "killed by SIGKILL" in last.job.fault.message
        before = await best_of(stub, job_id)
        await stub.StartSearch(request)
        await watch(stub, job_id, until=has_best)
        await stub.StopSearch(search_pb2.StopSearchRequest(job_id=job_id))
        last = await watch(stub, job_id)
        assert last.job.state == "stopped"
        after = plan_from_document(PlacementPlan, json.loads(last.result_json))
        assert not after.is_complete
        assert find_placement_violations(after) == []
        assert (await best_of(stub, job_id)).attainment >= before.attainment


async def test_a_planner_that_is_killed_takes_its_search_up_where_it_was(
    planner: PlannerProcess, long_problem: PlacementProblem
) -> None:
    request = request_of(long_problem, processes=2)
    async with planner.stub() as stub:
        job_id = (await stub.StartSearch(request)).job.job_id
        await watch(stub, job_id, until=has_best)
        searching: list[psutil.Process] = planner.children()
        before = await best_of(stub, job_id)
        planner.kill()
    wait_until_gone(searching)
    planner.start()
    async with planner.stub() as stub:
        # asked again while it goes on, it is the same search
        assert (await stub.StartSearch(request)).job.job_id == job_id
        await watch(stub, job_id, until=lambda job: has_best(job) and job.progress.phase == "searching")
        assert planner.children()
        await stub.StopSearch(search_pb2.StopSearchRequest(job_id=job_id))
        last = await watch(stub, job_id)
        assert last.job.state == "stopped"
        assert json.loads(last.result_json)["placement"]["groups"]
        assert (await best_of(stub, job_id)).attainment >= before.attainment


async def test_one_that_is_given_up_ends_at_once_and_keeps_its_best(
    planner: PlannerProcess, long_problem: PlacementProblem
) -> None:
    async with planner.stub() as stub:
        job_id = (await stub.StartSearch(request_of(long_problem))).job.job_id
        await watch(stub, job_id, until=has_best)
        await stub.StopSearch(search_pb2.StopSearchRequest(job_id=job_id, give_up=True))
        last = await watch(stub, job_id)
        assert (last.job.state, last.result_json) == ("stopped", "")
        assert planner.children() == []
        assert (await best_of(stub, job_id)).placement.groups
