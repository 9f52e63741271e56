"""A client of the planner."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

from headway.controller.clients.call import calling, endpoint_of
from headway.core.cluster import PlanWorker
from headway.core.placement_problem import PlacementProblem
from headway.core.plan.placement import PlacementAlternative, PlacementPlan
from headway.core.plan.serving import EngineLimits, ModelDeployment, ServingPlan
from headway.core.search_progress import SearchProgress
from headway.rpc.convert import from_pb, to_pb
from headway.rpc.convert.search import placement_progress_from_pb
from headway.rpc.peers import Peers
from headway.v1 import common_pb2, placement_pb2, planner_pb2, planner_pb2_grpc

_TIMEOUT_S = 30.0
_SIMULATION_TIMEOUT_S = 120.0


class PlannerClient:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def make(
        self,
        models: Sequence[ModelDeployment],
        workers: Sequence[PlanWorker],
        *,
        limits: EngineLimits,
        current: ServingPlan | None = None,
    ) -> ServingPlan:
        """A plan; workers keep the models that `current` gives them, where they can."""
        request = planner_pb2.MakePlanRequest(
            models=[to_pb(model, common_pb2.ModelDeployment) for model in models],
            workers=[to_pb(worker, planner_pb2.PlanWorker) for worker in workers],
            limits=to_pb(limits, planner_pb2.EngineLimits),
            current=None if current is None else to_pb(current, planner_pb2.ServingPlan),
        )
        endpoint = endpoint_of(self._peers, "planner")
        async with calling(self._peers, endpoint, planner_pb2_grpc.PlannerServiceStub) as stub:
            response = await stub.MakePlan(request, timeout=_TIMEOUT_S, metadata=self._peers.metadata)
        return from_pb(response.plan, ServingPlan)

    async def assign_workers(
        self,
        placement: PlacementPlan,
        models: Sequence[ModelDeployment],
        workers: Sequence[PlanWorker],
        *,
        limits: EngineLimits,
        current: ServingPlan | None,
    ) -> ServingPlan:
        """A plan that makes a placement so; groups and models stay where `current` has them, where they can."""
        request = planner_pb2.SeatPlacementRequest(
            placement=to_pb(placement, placement_pb2.PlacementPlan),
            models=[to_pb(model, common_pb2.ModelDeployment) for model in models],
            workers=[to_pb(worker, planner_pb2.PlanWorker) for worker in workers],
            limits=to_pb(limits, planner_pb2.EngineLimits),
            current=None if current is None else to_pb(current, planner_pb2.ServingPlan),
        )
        endpoint = endpoint_of(self._peers, "planner")
        async with calling(self._peers, endpoint, planner_pb2_grpc.PlannerServiceStub) as stub:
            response = await stub.SeatPlacement(request, timeout=_TIMEOUT_S, metadata=self._peers.metadata)
        return from_pb(response.plan, ServingPlan)

    async def place(
        self, problem: PlacementProblem, files: Mapping[str, bytes], *, time_limit_s: float
    ) -> AsyncGenerator[SearchProgress | PlacementPlan, None]:
        """Yields progress, and at last the placement."""
        start = placement_pb2.PlanPlacementStart(
            problem=to_pb(problem, placement_pb2.PlacementProblem),
            files=_contents(files),
            time_limit_s=time_limit_s,
        )
        endpoint = endpoint_of(self._peers, "planner")
        async with calling(self._peers, endpoint, planner_pb2_grpc.PlannerServiceStub) as stub:
            requests = _one(placement_pb2.PlanPlacementRequest(start=start))
            async for response in stub.PlanPlacement(requests, metadata=self._peers.metadata):
                if response.HasField("plan"):
                    yield from_pb(response.plan, PlacementPlan)
                else:
                    yield placement_progress_from_pb(response.progress)

    async def try_instead(
        self, placement: PlacementPlan, text: str, files: Mapping[str, bytes]
    ) -> PlacementAlternative:
        """Returns what another placement would give on the requests of `placement`; see `headway plan explain
        --instead`.
        """
        request = placement_pb2.TryPlacementRequest(
            plan=to_pb(placement, placement_pb2.PlacementPlan), files=_contents(files), instead=text
        )
        endpoint = endpoint_of(self._peers, "planner")
        async with calling(self._peers, endpoint, planner_pb2_grpc.PlannerServiceStub) as stub:
            response = await stub.TryPlacement(request, timeout=_SIMULATION_TIMEOUT_S, metadata=self._peers.metadata)
        return from_pb(response.alternative, PlacementAlternative)

    async def find_violations(self, plan: ServingPlan) -> list[str]:
        """Empty for a valid plan."""
        request = planner_pb2.CertifyPlanRequest(plan=to_pb(plan, planner_pb2.ServingPlan))
        endpoint = endpoint_of(self._peers, "planner")
        async with calling(self._peers, endpoint, planner_pb2_grpc.PlannerServiceStub) as stub:
            response = await stub.CertifyPlan(request, timeout=_TIMEOUT_S, metadata=self._peers.metadata)
        return list(response.violations)


def _contents(files: Mapping[str, bytes]) -> list[placement_pb2.FileContent]:
    return [placement_pb2.FileContent(name=name, content=content) for name, content in files.items()]


async def _one(request: placement_pb2.PlanPlacementRequest) -> AsyncIterator[placement_pb2.PlanPlacementRequest]:
    """Yields one message, and nothing more until the answer has come: a second message would end the search."""
    yield request
