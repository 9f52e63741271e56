"""PlannerService over gRPC: convert, call, convert."""

from headway.core.cluster import PlanWorker
from headway.core.plan import EngineLimits, ModelDeployment, ServingPlan
from headway.planner.certify.certificate import find_violations
from headway.planner.certify.explanation import explain
from headway.planner.service import PlannerService
from headway.rpc.convert import from_pb, to_pb
from headway.rpc.interceptors import Context
from headway.v1 import planner_pb2, planner_pb2_grpc


class PlannerServicer(planner_pb2_grpc.PlannerServiceServicer):
    def __init__(self, service: PlannerService) -> None:
        self._service = service

    async def MakePlan(self, request: planner_pb2.MakePlanRequest, context: Context) -> planner_pb2.MakePlanResponse:
        plan = await self._service.make(
            [from_pb(model, ModelDeployment) for model in request.models],
            [from_pb(worker, PlanWorker) for worker in request.workers],
            limits=from_pb(request.limits, EngineLimits),
            current=from_pb(request.current, ServingPlan) if request.HasField("current") else None,
        )
        return planner_pb2.MakePlanResponse(plan=to_pb(plan, planner_pb2.ServingPlan))

    async def CertifyPlan(
        self, request: planner_pb2.CertifyPlanRequest, context: Context
    ) -> planner_pb2.CertifyPlanResponse:
        return planner_pb2.CertifyPlanResponse(violations=find_violations(from_pb(request.plan, ServingPlan)))

    async def ExplainPlan(
        self, request: planner_pb2.ExplainPlanRequest, context: Context
    ) -> planner_pb2.ExplainPlanResponse:
        return planner_pb2.ExplainPlanResponse(sentences=explain(from_pb(request.plan, ServingPlan)))
