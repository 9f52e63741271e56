"""PlannerService over gRPC: converts requests, calls the service, converts results."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import TypeVar

from headway.core.cluster import Hardware, PlanWorker
from headway.core.codec import from_document, to_document
from headway.core.errors import InvalidArgumentError
from headway.core.frontier import Frontier, Question
from headway.core.graph import Graph
from headway.core.placement_problem import PlacementProblem
from headway.core.placement_search import FrontierSearch, PlacementSearch
from headway.core.plan.document import plan_from_document
from headway.core.plan.placement import PlacementPlan
from headway.core.plan.serving import EngineLimits, ModelDeployment, ServingPlan
from headway.core.search_job import SearchJob
from headway.planner.certify.certificate import find_violations
from headway.planner.certify.explanation import explain
from headway.planner.certify.placement import find_placement_violations
from headway.planner.jobs.jobs import SearchJobs
from headway.planner.jobs.servicer import SearchCalls
from headway.planner.placing import PlacementService
from headway.planner.service import PlannerService
from headway.rpc.convert import from_pb, to_pb
from headway.rpc.convert.search import placement_progress_to_pb, search_work
from headway.rpc.interceptors import Context
from headway.rpc.tasks import end_tasks
from headway.v1 import placement_pb2, planner_pb2, planner_pb2_grpc, profiler_pb2

Start = TypeVar("Start", placement_pb2.PlanPlacementRequest, placement_pb2.FindFrontierRequest)


class PlannerServicer(SearchCalls, planner_pb2_grpc.PlannerServiceServicer):
    def __init__(self, service: PlannerService, *, placements: PlacementService, jobs: SearchJobs) -> None:
        super().__init__(jobs)
        self._service = service
        self._placements = placements

    async def MakePlan(self, request: planner_pb2.MakePlanRequest, context: Context) -> planner_pb2.MakePlanResponse:
        plan = await self._service.make(
            [from_pb(model, ModelDeployment) for model in request.models],
            [from_pb(worker, PlanWorker) for worker in request.workers],
            limits=from_pb(request.limits, EngineLimits),
            current=from_pb(request.current, ServingPlan) if request.HasField("current") else None,
        )
        return planner_pb2.MakePlanResponse(plan=to_pb(plan, planner_pb2.ServingPlan))

    async def SeatPlacement(
        self, request: planner_pb2.SeatPlacementRequest, context: Context
    ) -> planner_pb2.SeatPlacementResponse:
        plan = await self._service.assign_workers(
            from_pb(request.placement, PlacementPlan),
            [from_pb(model, ModelDeployment) for model in request.models],
            [from_pb(worker, PlanWorker) for worker in request.workers],
            limits=from_pb(request.limits, EngineLimits),
            current=from_pb(request.current, ServingPlan) if request.HasField("current") else None,
        )
        return planner_pb2.SeatPlacementResponse(plan=to_pb(plan, planner_pb2.ServingPlan))

    async def CertifyPlan(
        self, request: planner_pb2.CertifyPlanRequest, context: Context
    ) -> planner_pb2.CertifyPlanResponse:
        return planner_pb2.CertifyPlanResponse(violations=find_violations(from_pb(request.plan, ServingPlan)))

    async def ExplainPlan(
        self, request: planner_pb2.ExplainPlanRequest, context: Context
    ) -> planner_pb2.ExplainPlanResponse:
        return planner_pb2.ExplainPlanResponse(sentences=explain(from_pb(request.plan, ServingPlan)))

    async def EstimateStages(
        self, request: placement_pb2.EstimateStagesRequest, context: Context
    ) -> placement_pb2.EstimateStagesResponse:
        profiles = await self._placements.estimate(
            from_pb(request.graph, Graph),
            model=request.model,
            device=request.device,
            max_devices=request.max_devices,
            dtype=request.dtype if request.HasField("dtype") else None,
            is_live=request.is_live,
        )
        return placement_pb2.EstimateStagesResponse(
            profiles=[to_pb(profile, profiler_pb2.StageProfile) for profile in profiles]
        )

    async def EstimateGeneration(
        self, request: placement_pb2.EstimateGenerationRequest, context: Context
    ) -> placement_pb2.EstimateGenerationResponse:
        profiles = await self._placements.estimate_generation(
            from_pb(request.model, ModelDeployment),
            from_pb(request.hardware, Hardware),
            max_devices=request.max_devices,
        )
        return placement_pb2.EstimateGenerationResponse(
            profiles=[to_pb(profile, profiler_pb2.StageProfile) for profile in profiles]
        )

    async def PlanPlacement(
        self, request_iterator: AsyncIterator[placement_pb2.PlanPlacementRequest], context: Context
    ) -> AsyncIterator[placement_pb2.PlanPlacementResponse]:
        start = (await _first(request_iterator)).start
        search = PlacementSearch(
            problem=from_pb(start.problem, PlacementProblem),
            processes=start.processes if start.HasField("processes") else None,
        )
        async with aclosing(self._follow("placement", search, start, request_iterator)) as jobs:
            async for job in jobs:
                if job.state.has_ended:
                    plan = plan_from_document(PlacementPlan, await self._jobs.result(job))
                    yield placement_pb2.PlanPlacementResponse(plan=to_pb(plan, placement_pb2.PlacementPlan))
                else:
                    yield placement_pb2.PlanPlacementResponse(progress=placement_progress_to_pb(job.progress))

    async def CertifyPlacement(
        self, request: placement_pb2.CertifyPlacementRequest, context: Context
    ) -> placement_pb2.CertifyPlacementResponse:
        violations = find_placement_violations(from_pb(request.plan, PlacementPlan))
        return placement_pb2.CertifyPlacementResponse(violations=violations)

    async def TryPlacement(
        self, request: placement_pb2.TryPlacementRequest, context: Context
    ) -> placement_pb2.TryPlacementResponse:
        plan = from_pb(request.plan, PlacementPlan)
        tried = await self._placements.try_instead(plan, request.instead, _files(request.files))
        return placement_pb2.TryPlacementResponse(alternative=to_pb(tried, placement_pb2.PlacementAlternative))

    async def FindFrontier(
        self, request_iterator: AsyncIterator[placement_pb2.FindFrontierRequest], context: Context
    ) -> AsyncIterator[placement_pb2.FindFrontierResponse]:
        start = (await _first(request_iterator)).start
        search = FrontierSearch(
            problem=from_pb(start.problem, PlacementProblem), question=_question(start.question), target=start.target
        )
        async with aclosing(self._follow("frontier", search, start, request_iterator)) as jobs:
            async for job in jobs:
                if job.state.has_ended:
                    frontier = from_document(Frontier, await self._jobs.result(job))
                    yield placement_pb2.FindFrontierResponse(frontier=to_pb(frontier, placement_pb2.Frontier))
                else:
                    progress = placement_progress_to_pb(job.progress, has_placement=False)
                    yield placement_pb2.FindFrontierResponse(progress=progress)

    async def _follow(
        self,
        kind: str,
        search: PlacementSearch | FrontierSearch,
        start: placement_pb2.PlanPlacementStart | placement_pb2.FindFrontierStart,
        requests: AsyncIterator[Start],
    ) -> AsyncGenerator[SearchJob, None]:
        """Starts a search and yields its job until it has ended. A further message stops it, and so does a caller who
        leaves."""
        time_limit_s = start.time_limit_s if start.HasField("time_limit_s") else None
        work = search_work(kind, to_document(search), files=start.files, time_limit_s=time_limit_s)
        job = await self._jobs.start(work, title=search.title)

        async def stop() -> None:
            async for _ in requests:
                await self._jobs.stop(job.job_id)

        stopping = asyncio.create_task(stop())
        try:
            async with aclosing(self._jobs.watch(job.job_id)) as jobs:
                async for job in jobs:
                    yield job
        finally:
            await end_tasks([stopping])
            await self._jobs.stop(job.job_id)


async def _first(requests: AsyncIterator[Start]) -> Start:
    """Reads the message that starts a call; InvalidArgumentError where it is another."""
    async for request in requests:
        if request.HasField("start"):
            return request
        break
    raise InvalidArgumentError("The first message should be a start.", hint="Send the problem.", field="start")


def _files(files: Iterable[placement_pb2.FileContent]) -> dict[str, bytes]:
    return {file.name: file.content for file in files}


def _question(name: str) -> Question:
    if name not in tuple(Question):
        raise InvalidArgumentError(
            f"There is no question '{name}'.", hint=f"Known are {', '.join(Question)}.", field="question"
        )
    return Question(name)
