"""What the gateway asks of the router and of workers, as core types."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

import grpc
import numpy as np
from numpy.typing import NDArray

from headway.core.errors import HeadwayError, UnavailableError
from headway.core.infer import InferRequest
from headway.core.request import GenerationRequest, SequenceOutput
from headway.core.slo import Slo
from headway.gateway.lease import Lease, PlaceRequest, Release
from headway.observe.logging import request_id_var
from headway.rpc.convert import group_to_pb, output_from_pb
from headway.rpc.convert.infer import infer_to_pb
from headway.rpc.interceptors import REQUEST_ID_METADATA_KEY
from headway.rpc.peers import Peers
from headway.rpc.status import error_from_pb, error_from_rpc
from headway.v1 import common_pb2, router_pb2, router_pb2_grpc, worker_pb2, worker_pb2_grpc

_RELEASE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Submit:
    """Hands the sequences of one prompt to a worker."""

    requests: tuple[GenerationRequest, ...]
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Takes a sequence back."""

    sequence_id: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A sequence that the worker refused or gave up."""

    sequence_id: str
    error: HeadwayError


class RouterClient:
    """The router that runs at the moment."""

    def __init__(self, peers: Peers, *, gateway_id: str) -> None:
        self._peers = peers
        self._gateway_id = gateway_id

    async def route(self, request: PlaceRequest) -> Lease:
        message = router_pb2.RouteRequest(
            request_id=request.request_id,
            model=request.model,
            gateway_id=self._gateway_id,
            num_prompt_tokens=request.num_prompt_tokens,
            max_output_tokens=request.max_output_tokens,
            block_hashes=request.block_hashes,
            slo=_slo_to_pb(request.slo),
            excluded_worker_ids=request.excluded_worker_ids,
            resumed=request.resumed,
            num_sequences=request.num_sequences,
        )
        metadata = self._metadata(("traceparent", request.traceparent))
        response: router_pb2.RouteResponse = await self._peers.call(
            "router", router_pb2_grpc.RouterServiceStub, lambda stub: stub.Route(message, metadata=metadata)
        )
        return Lease(
            lease_id=response.lease_id,
            worker_id=response.worker_id,
            endpoint=response.endpoint,
            reason=response.reason,
        )

    async def release(self, release: Release) -> None:
        message = router_pb2.ReleaseRequest(
            lease_id=release.lease_id,
            outcome=release.outcome,
            ttft_s=release.ttft_s,
            tpot_s=release.tpot_s,
            usage=common_pb2.Usage(
                prompt_tokens=release.num_prompt_tokens, completion_tokens=release.num_output_tokens
            ),
            slo=_slo_to_pb(release.slo),
        )
        metadata = self._metadata()
        await self._peers.call(
            "router",
            router_pb2_grpc.RouterServiceStub,
            lambda stub: stub.Release(message, metadata=metadata, timeout=_RELEASE_TIMEOUT_S),
        )

    def _metadata(self, *pairs: tuple[str, str]) -> tuple[tuple[str, str], ...]:
        own = ((REQUEST_ID_METADATA_KEY, request_id_var.get()), *pairs)
        return (*self._peers.metadata, *(pair for pair in own if pair[1]))


class WorkerClient:
    """Token streams of workers."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def generate(
        self, endpoint: str, actions: AsyncIterator[Submit | Cancel]
    ) -> AsyncGenerator[list[SequenceOutput | Failure], None]:
        """Sends actions and yields what each step brings, until the stream breaks with a HeadwayError.

        The channel is the stream's own: it does not break when the worker's lease lapses.
        """
        async with self._peers.dial(endpoint) as channel:
            stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
            try:
                async for message in stub.GenerateTokens(_actions_to_pb(actions), metadata=self._peers.metadata):
                    yield [_output_from_pb(output) for output in message.outputs]
            except grpc.aio.AioRpcError as error:
                raise error_from_rpc(error) from None


class InferClient:
    """Calls to workers whose models do not generate."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def infer(self, endpoint: str, request: InferRequest, *, traceparent: str = "") -> list[NDArray[np.float32]]:
        """The vector of each sequence; HeadwayError where the worker refuses, fails or is lost."""
        stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(self._peers.channel(endpoint))
        message = infer_to_pb(request, traceparent=traceparent)
        try:
            response = await stub.InferSequences(message, metadata=self._peers.metadata)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The channel was closed under the call, since the worker's lease lapsed.
            raise UnavailableError(f"The worker at {endpoint} is gone.", hint="Try again in a moment.") from None
        return [np.frombuffer(vector, "<f4") for vector in response.vectors]


async def _actions_to_pb(
    actions: AsyncIterator[Submit | Cancel],
) -> AsyncIterator[worker_pb2.GenerateTokensRequest]:
    async for action in actions:
        if isinstance(action, Submit):
            group = group_to_pb(action.requests, traceparent=action.traceparent)
            yield worker_pb2.GenerateTokensRequest(submit_group=group)
        else:
            cancel = worker_pb2.CancelSequence(request_id=action.sequence_id)
            yield worker_pb2.GenerateTokensRequest(cancel=cancel)


def _output_from_pb(message: worker_pb2.SequenceOutput) -> SequenceOutput | Failure:
    if message.HasField("error"):
        return Failure(message.request_id, error_from_pb(message.error))
    return output_from_pb(message)


def _slo_to_pb(slo: Slo) -> common_pb2.Slo:
    return common_pb2.Slo(ttft_s=slo.ttft_s, tpot_s=slo.tpot_s)
