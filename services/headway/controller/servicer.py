"""ControllerService over gRPC: convert, call, convert."""

from collections.abc import Callable

from headway.controller.service import ControllerService
from headway.core.plan import ServingPlan
from headway.rpc.convert import from_pb, to_pb
from headway.rpc.interceptors import Context
from headway.rpc.status import error_to_pb
from headway.v1 import controller_pb2, controller_pb2_grpc, planner_pb2


class ControllerServicer(controller_pb2_grpc.ControllerServiceServicer):
    """Calls `on_shutdown` when a shutdown has ended everything else."""

    def __init__(self, service: ControllerService, *, on_shutdown: Callable[[], None]) -> None:
        self._service = service
        self._on_shutdown = on_shutdown

    async def ApplyPlan(
        self, request: controller_pb2.ApplyPlanRequest, context: Context
    ) -> controller_pb2.ApplyPlanResponse:
        changes = await self._service.apply(from_pb(request.plan, ServingPlan), dry_run=request.dry_run)
        return controller_pb2.ApplyPlanResponse(changes=changes)

    async def GetPlan(self, request: controller_pb2.GetPlanRequest, context: Context) -> controller_pb2.GetPlanResponse:
        plan = await self._service.plan(request.plan_id)
        return controller_pb2.GetPlanResponse(
            plan=to_pb(plan, planner_pb2.ServingPlan), plan_ids=await self._service.plan_ids()
        )

    async def GetStatus(
        self, request: controller_pb2.GetStatusRequest, context: Context
    ) -> controller_pb2.GetStatusResponse:
        response = to_pb(self._service.status(), controller_pb2.GetStatusResponse)
        if (fault := self._service.fault()) is not None:
            response.fault.CopyFrom(error_to_pb(fault))
        return response

    async def Shutdown(
        self, request: controller_pb2.ShutdownRequest, context: Context
    ) -> controller_pb2.ShutdownResponse:
        await self._service.shutdown(grace_s=request.grace_s)
        self._on_shutdown()
        return controller_pb2.ShutdownResponse()
