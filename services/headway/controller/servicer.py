"""ControllerService over gRPC: it converts messages, calls the controller's service, and converts the results."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

from headway.controller.api_keys import ApiKeys
from headway.controller.idle_models import IdleModels
from headway.controller.placements import Placements
from headway.controller.replanning_loop import ReplanningLoop
from headway.controller.service import ControllerService
from headway.core.api_key import ApiKeyRecord
from headway.core.plan.placement import PlacementPlan
from headway.core.plan.serving import ModelDeployment, ServingPlan
from headway.core.replanning import ReplanningDecision, ReplanningPolicy
from headway.rpc.convert import from_pb, to_pb
from headway.rpc.convert.search import placement_progress_to_pb
from headway.rpc.interceptors import Context
from headway.rpc.status import error_to_pb
from headway.v1 import controller_pb2, controller_pb2_grpc, placement_pb2, planner_pb2, replacement_pb2


class ControllerServicer(controller_pb2_grpc.ControllerServiceServicer):
    """Calls `on_shutdown` when a shutdown has ended everything else."""

    def __init__(
        self,
        service: ControllerService,
        *,
        placements: Placements,
        replanning: ReplanningLoop,
        idle_models: IdleModels,
        api_keys: ApiKeys,
        on_shutdown: Callable[[], Awaitable[None]],
    ) -> None:
        self._service = service
        self._placements = placements
        self._replanning = replanning
        self._idle_models = idle_models
        self._api_keys = api_keys
        self._on_shutdown = on_shutdown

    async def ApplyPlan(
        self, request: controller_pb2.ApplyPlanRequest, context: Context
    ) -> controller_pb2.ApplyPlanResponse:
        if request.HasField("placement") and not request.dry_run:
            await self._placements.keep(from_pb(request.placement, PlacementPlan))
        changes = await self._service.apply(
            from_pb(request.plan, ServingPlan),
            dry_run=request.dry_run,
            replaces=request.replaces if request.HasField("replaces") else None,
        )
        return controller_pb2.ApplyPlanResponse(changes=map(str, changes))

    async def ProposePlacement(
        self, request: controller_pb2.ProposePlacementRequest, context: Context
    ) -> controller_pb2.ProposePlacementResponse:
        proposal = await self._placements.propose(
            from_pb(request.placement, PlacementPlan), [from_pb(model, ModelDeployment) for model in request.models]
        )
        return to_pb(proposal, controller_pb2.ProposePlacementResponse)

    async def GetPlacement(
        self, request: controller_pb2.GetPlacementRequest, context: Context
    ) -> controller_pb2.GetPlacementResponse:
        placement = await self._placements.get(request.placement_id)
        return controller_pb2.GetPlacementResponse(placement=to_pb(placement, placement_pb2.PlacementPlan))

    async def Replace(
        self, request: replacement_pb2.ReplaceRequest, context: Context
    ) -> AsyncIterator[replacement_pb2.ReplaceResponse]:
        steps = self._replanning.run(from_pb(request.replacement, ReplanningPolicy), dry_run=request.dry_run)
        async with aclosing(steps):
            async for told in steps:
                if isinstance(told, ReplanningDecision):
                    decision = to_pb(told, replacement_pb2.ReplacementDecision)
                    yield replacement_pb2.ReplaceResponse(decision=decision)
                else:
                    progress = placement_progress_to_pb(told)
                    yield replacement_pb2.ReplaceResponse(progress=progress)

    async def SetReplacement(
        self, request: replacement_pb2.SetReplacementRequest, context: Context
    ) -> replacement_pb2.SetReplacementResponse:
        how = from_pb(request.replacement, ReplanningPolicy) if request.HasField("replacement") else None
        await self._replanning.set(how)
        return replacement_pb2.SetReplacementResponse()

    async def GetReplacement(
        self, request: replacement_pb2.GetReplacementRequest, context: Context
    ) -> replacement_pb2.GetReplacementResponse:
        return to_pb(await self._replanning.status(), replacement_pb2.GetReplacementResponse)

    async def GetPlan(self, request: controller_pb2.GetPlanRequest, context: Context) -> controller_pb2.GetPlanResponse:
        plan = await self._service.plan(request.plan_id)
        return controller_pb2.GetPlanResponse(
            plan=to_pb(plan, planner_pb2.ServingPlan), plan_ids=await self._service.plan_ids()
        )

    async def WakeModel(
        self, request: controller_pb2.WakeModelRequest, context: Context
    ) -> controller_pb2.WakeModelResponse:
        return controller_pb2.WakeModelResponse(plan_id=await self._idle_models.wake(request.model))

    async def GetStatus(
        self, request: controller_pb2.GetStatusRequest, context: Context
    ) -> controller_pb2.GetStatusResponse:
        response = to_pb(self._service.status(), controller_pb2.GetStatusResponse)
        if (fault := self._service.fault()) is not None:
            response.fault.CopyFrom(error_to_pb(fault))
        return response

    async def CreateApiKey(
        self, request: controller_pb2.CreateApiKeyRequest, context: Context
    ) -> controller_pb2.CreateApiKeyResponse:
        secret, record = await self._api_keys.create(
            tenant=request.tenant,
            models=request.models,
            requests_per_minute=request.requests_per_minute if request.HasField("requests_per_minute") else None,
            lifetime_s=request.lifetime_s if request.HasField("lifetime_s") else None,
            is_admin=request.is_admin,
        )
        return controller_pb2.CreateApiKeyResponse(secret=secret, api_key=_api_key_to_pb(record))

    async def ListApiKeys(
        self, request: controller_pb2.ListApiKeysRequest, context: Context
    ) -> controller_pb2.ListApiKeysResponse:
        return controller_pb2.ListApiKeysResponse(api_keys=map(_api_key_to_pb, await self._api_keys.list()))

    async def RevokeApiKey(
        self, request: controller_pb2.RevokeApiKeyRequest, context: Context
    ) -> controller_pb2.RevokeApiKeyResponse:
        return controller_pb2.RevokeApiKeyResponse(api_key=_api_key_to_pb(await self._api_keys.revoke(request.key_id)))

    async def Shutdown(
        self, request: controller_pb2.ShutdownRequest, context: Context
    ) -> controller_pb2.ShutdownResponse:
        await self._service.shutdown(grace_s=request.grace_s)
        await self._on_shutdown()
        return controller_pb2.ShutdownResponse()


def _api_key_to_pb(record: ApiKeyRecord) -> controller_pb2.ApiKey:
    return controller_pb2.ApiKey(
        key_id=record.key_id,
        tenant=record.tenant,
        models=record.models,
        requests_per_minute=record.requests_per_minute,
        is_admin=record.is_admin,
        created_at_s=record.created_at_s,
        expires_at_s=record.expires_at_s,
        revoked_at_s=record.revoked_at_s,
    )
