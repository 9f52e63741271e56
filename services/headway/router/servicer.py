"""RouterService over gRPC: it converts messages, calls the router's service, and converts the results."""

import asyncio
import math
from collections.abc import AsyncIterator

from headway.core.errors import InvalidArgumentError
from headway.core.fair_share import check_weight
from headway.observe.failpoint import failpoint
from headway.observe.tracing import Tracing
from headway.router.dispatch_stream import Answer, DispatchStream
from headway.router.lease import Lease, LeaseOutcome, Release
from headway.router.request import RoutingRequest
from headway.router.service import RouterService
from headway.rpc.convert import to_pb
from headway.rpc.convert.slo import slo_from_pb
from headway.rpc.interceptors import Context
from headway.rpc.status import error_to_pb
from headway.rpc.tasks import end_tasks, tell_failure
from headway.v1 import router_pb2, router_pb2_grpc, worker_pb2


class RouterServicer(router_pb2_grpc.RouterServiceServicer):
    """The servicer of RouterService."""

    def __init__(self, service: RouterService, *, tracing: Tracing) -> None:
        self._service = service
        self._tracing = tracing

    async def Dispatch(
        self, request_iterator: AsyncIterator[router_pb2.DispatchRequest], context: Context
    ) -> AsyncIterator[router_pb2.DispatchResponse]:
        dispatch_stream = DispatchStream(self._service, tracing=self._tracing)
        reader = asyncio.create_task(_read(request_iterator, dispatch_stream))
        tell_failure(reader, dispatch_stream.fail)
        try:
            async for answer in dispatch_stream.answers():
                failpoint("router.placed")
                yield _answer_to_pb(answer)
        finally:
            await end_tasks([reader])
            await dispatch_stream.close()

    async def GetFleet(self, request: router_pb2.GetFleetRequest, context: Context) -> router_pb2.GetFleetResponse:
        return to_pb(self._service.fleet_view(), router_pb2.GetFleetResponse)


async def _read(requests: AsyncIterator[router_pb2.DispatchRequest], dispatch_stream: DispatchStream) -> None:
    async for message in requests:
        if message.HasField("first_token"):
            dispatch_stream.note_first_token(message.first_token.lease_id, ttft_s=message.first_token.ttft_s)
            continue
        action = message.route if message.HasField("route") else message.release
        try:
            if isinstance(action, router_pb2.Route):
                dispatch_stream.route(_request_from_pb(action))
            else:
                dispatch_stream.release(_release_from_pb(action))
        except InvalidArgumentError as error:
            dispatch_stream.refuse(action.request_id, error, attempt=action.attempt)
    dispatch_stream.finish()


def _request_from_pb(message: router_pb2.Route) -> RoutingRequest:
    for field in ("num_prompt_tokens", "max_output_tokens", "num_sequences"):
        if getattr(message, field) < 0:
            raise InvalidArgumentError(f"{field} is {getattr(message, field)}, it must not be negative.", field=field)
    tenant_weight = message.tenant_weight if message.HasField("tenant_weight") else 1.0
    check_weight(tenant_weight, field="tenant_weight")
    return RoutingRequest(
        request_id=message.request_id,
        model=message.model,
        gateway_id=message.gateway_id,
        num_prompt_tokens=message.num_prompt_tokens,
        max_output_tokens=message.max_output_tokens,
        block_hashes=tuple(message.block_hashes),
        slo=slo_from_pb(message.slo),
        excluded_worker_ids=frozenset(message.excluded_worker_ids),
        resumed=message.resumed,
        preferred_worker_id=message.preferred_worker_id,
        stays=message.stays,
        priority=message.priority,
        num_sequences=message.num_sequences or 1,
        traceparent=message.traceparent,
        elapsed_s=message.elapsed_s,
        tenant=message.tenant,
        tenant_weight=tenant_weight,
        adapter=message.adapter,
        attempt=message.attempt,
    )


def _release_from_pb(message: router_pb2.Release) -> Release:
    if message.outcome not in set(LeaseOutcome):
        raise InvalidArgumentError(
            f"The outcome '{message.outcome}' is unknown.",
            hint=f"Send one of: {', '.join(LeaseOutcome)}.",
            field="outcome",
        )
    return Release(
        outcome=LeaseOutcome(message.outcome),
        lease_id=message.lease_id,
        gateway_id=message.gateway_id,
        request_id=message.request_id,
        attempt=message.attempt,
        ttft_s=message.ttft_s if message.HasField("ttft_s") else None,
        tpot_s=message.tpot_s if message.HasField("tpot_s") else None,
        e2e_s=message.e2e_s if message.HasField("e2e_s") else None,
        num_output_tokens=message.usage.completion_tokens,
        slo=slo_from_pb(message.slo),
    )


def _answer_to_pb(answer: Answer) -> router_pb2.DispatchResponse:
    message = router_pb2.DispatchResponse(request_id=answer.request_id, attempt=answer.attempt)
    if isinstance(answer.outcome, Lease):
        message.lease.CopyFrom(_lease_to_pb(answer.outcome))
    else:
        message.error.CopyFrom(error_to_pb(answer.outcome))
    return message


def _lease_to_pb(lease: Lease) -> router_pb2.Lease:
    return router_pb2.Lease(
        lease_id=lease.lease_id,
        worker_id=lease.worker_id,
        group_id=lease.group_id,
        endpoint=lease.endpoint,
        reason=lease.reason,
        predicted_ttft_s=lease.ttft_s,
        predicted_tpot_s=lease.tpot_s,
        num_cached_tokens=lease.num_cached_tokens,
        is_foregone=lease.is_sole_replica,
        decode_target=to_pb(lease.decode_target, worker_pb2.MoveTarget) if lease.decode_target else None,
        prefix_source=to_pb(lease.source, worker_pb2.PrefixSource) if lease.source else None,
        slack_s=lease.slack_s if lease.slack_s < math.inf else None,
    )
