"""Calls to the planner."""

from collections.abc import Sequence

from headway.controller.clients.call import calling, endpoint_of
from headway.core.cluster import PlanWorker
from headway.core.plan import EngineLimits, ModelDeployment, ServingPlan
from headway.rpc.convert import from_pb, to_pb
from headway.rpc.peers import Peers
from headway.v1 import common_pb2, planner_pb2, planner_pb2_grpc

_TIMEOUT_S = 30.0


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

    async def find_violations(self, plan: ServingPlan) -> list[str]:
        """Empty for a valid plan."""
        request = planner_pb2.CertifyPlanRequest(plan=to_pb(plan, planner_pb2.ServingPlan))
        endpoint = endpoint_of(self._peers, "planner")
        async with calling(self._peers, endpoint, planner_pb2_grpc.PlannerServiceStub) as stub:
            response = await stub.CertifyPlan(request, timeout=_TIMEOUT_S, metadata=self._peers.metadata)
        return list(response.violations)
