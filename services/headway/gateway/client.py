"""A client of workers for the gateway, in core types."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import TypeAlias

import grpc
import numpy as np
from numpy.typing import NDArray

from headway.core.errors import HeadwayError, InvalidArgumentError
from headway.core.infer import InferRequest
from headway.core.move import MoveTarget
from headway.core.prefix_source import PrefixSource
from headway.core.request import GenerationRequest, SequenceOutput
from headway.gateway.errors import WorkerDiedError, WorkerLeavingError, WorkerUnreachableError
from headway.rpc.closing import unavailable_when_closed
from headway.rpc.convert import group_to_pb, output_from_pb, to_pb
from headway.rpc.convert.infer import infer_to_pb
from headway.rpc.peers import MAX_MESSAGE_BYTES, Peers
from headway.rpc.status import carries_error, error_from_pb, error_from_rpc
from headway.v1 import worker_pb2, worker_pb2_grpc

_MAX_SUBMIT_BYTES = MAX_MESSAGE_BYTES - 1024  # with room for what is around it
_NOT_CONNECTED = "failed to connect"  # as gRPC says it: nothing was sent then


@dataclass(frozen=True, slots=True)
class Submit:
    """Hands the sequences of one prompt to a worker.

    Attributes:
        decode_target: where they go on once their prompt is computed; None: they stay.
        source: where the worker is to fetch the prompt's first blocks; None for nowhere.
    """

    requests: tuple[GenerationRequest, ...]
    traceparent: str = ""
    decode_target: MoveTarget | None = None
    source: PrefixSource | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """An action that takes sequences back."""

    sequence_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A sequence that the worker refused or gave up. `moved_to` is the worker that holds its blocks by now, if any."""

    sequence_id: str
    error: HeadwayError
    moved_to: str = ""


# By the sequence's id, a token that comes with nothing else. Nearly all do: more is not made of one than that.
PlainToken: TypeAlias = tuple[str, int]


@dataclass(slots=True)
class StepOutputs:
    """The outputs of one engine step. The youngest sequences are last in either list."""

    plain: list[PlainToken]
    others: list[SequenceOutput | Failure]


class TokenStreamClient:
    """Token streams of workers."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def generate(
        self, endpoint: str, actions: AsyncIterator[Submit | Cancel], *, refuse: Callable[[Failure], None]
    ) -> AsyncGenerator[StepOutputs, None]:
        """Sends actions and yields what each step brings, until the stream breaks with a HeadwayError: a
        WorkerLeavingError where the worker itself says that it takes nothing any more.

        `refuse` hears of sequences that cannot be sent: the stream is everybody's, and goes on without them. The
        channel is the stream's own: it does not break when the worker's lease lapses.
        """
        async with self._peers.dial(endpoint) as channel:
            stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
            try:
                async for message in stub.GenerateTokens(
                    _actions_to_pb(actions, refuse), metadata=self._peers.metadata
                ):
                    yield _step_from_pb(message)
            except grpc.aio.AioRpcError as error:
                fault = error_from_rpc(error)
                if error.code() is grpc.StatusCode.UNAVAILABLE and carries_error(error):
                    raise WorkerLeavingError(fault.message, hint=fault.hint) from None
                raise fault from None


class InferClient:
    """Calls to workers whose models do not generate."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def infer(self, endpoint: str, request: InferRequest, *, traceparent: str = "") -> list[NDArray[np.float32]]:
        """The vector of each sequence.

        Raises:
            WorkerDiedError: the worker was lost while it had the request.
            WorkerUnreachableError: it was sent nothing.
            HeadwayError: it refuses or fails.
        """
        channel = self._peers.channel(endpoint)
        stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
        message = infer_to_pb(request, traceparent=traceparent)
        try:
            with unavailable_when_closed(f"The worker at {endpoint}"):
                response = await stub.InferSequences(message, metadata=self._peers.metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE or carries_error(error):
                raise error_from_rpc(error) from None
            if _NOT_CONNECTED in (error.details() or ""):
                fault = error_from_rpc(error)
                raise WorkerUnreachableError(fault.message, hint=fault.hint) from None
            raise WorkerDiedError(f"The worker at {endpoint} was lost: {error.details()}") from None
        return [np.frombuffer(vector, "<f4") for vector in response.vectors]


async def _actions_to_pb(
    actions: AsyncIterator[Submit | Cancel], refuse: Callable[[Failure], None]
) -> AsyncIterator[worker_pb2.GenerateTokensRequest]:
    async for action in actions:
        if isinstance(action, Cancel):
            cancel = worker_pb2.CancelSequence(request_ids=action.sequence_ids)
            yield worker_pb2.GenerateTokensRequest(cancel=cancel)
            continue
        group = group_to_pb(action.requests, traceparent=action.traceparent)
        if action.decode_target is not None:
            group.decode_target.CopyFrom(to_pb(action.decode_target, worker_pb2.MoveTarget))
        if action.source is not None:
            group.prefix_source.CopyFrom(to_pb(action.source, worker_pb2.PrefixSource))
        if (num_bytes := group.ByteSize()) <= _MAX_SUBMIT_BYTES:
            yield worker_pb2.GenerateTokensRequest(submit_group=group, takes_plain_tokens=True)
            continue
        error = InvalidArgumentError(
            f"The request takes {num_bytes} bytes to send to a worker, which takes {_MAX_SUBMIT_BYTES}.",
            hint="Send a shorter prompt, fewer samples, or a smaller guide or logit_bias.",
        )
        for request in action.requests:
            refuse(Failure(request.request_id, error))


def _step_from_pb(message: worker_pb2.GenerateTokensResponse) -> StepOutputs:
    return StepOutputs(
        plain=list(zip(message.plain_request_ids, message.plain_token_ids, strict=True)),
        others=[_output_from_pb(output) for output in message.outputs],
    )


def _output_from_pb(message: worker_pb2.SequenceOutput) -> SequenceOutput | Failure:
    if message.HasField("error"):
        return Failure(message.request_id, error_from_pb(message.error), moved_to=message.moved_to_worker_id)
    return output_from_pb(message)
