"""Calls of a service: every method, by its descriptor, with messages of any content."""

from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import chain
from random import Random
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from headway.rpc.status import carries_error, error_from_rpc
from headway.v1 import worker_pb2
from tests.fuzz.amount import NUM_CALLS
from tests.fuzz.mutation import mutate_message, random_message

_CRASHES = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
_TIMEOUT_S = 60.0
_WAIT_S = 1.0
_NUM_COSTLY = 3
_NUM_ANSWERS = 100

Plain = Mapping[str, Sequence[Message]]
"""Messages that are answered without a fault, by the method's name; half of the others are made of them."""


async def call_all(
    channel: grpc.aio.Channel,
    methods: Sequence[MethodDescriptor],
    *,
    plain: Plain,
    costly: Sequence[str] = (),
    waiting: Sequence[str] = (),
) -> None:
    """Calls one method after the other.

    Args:
        costly: methods that begin processes; they get few messages.
        waiting: methods that may have nothing to say for as long as their caller waits.
    """
    for method in methods:
        for message in cases(method, plain.get(method.name, ()), is_costly=method.name in costly):
            fault = await fault_of(channel, method, message, waits=method.name in waiting)
            assert not fault, f"{method.full_name}: {fault}\n{message}"


def cases(method: MethodDescriptor, plain: Sequence[Message], *, is_costly: bool) -> list[Message]:
    """The same each time."""
    kind, random = method.input_type._concrete_class, Random(method.full_name)
    if not kind.DESCRIPTOR.fields:
        return [kind()]
    num = _NUM_COSTLY if is_costly else NUM_CALLS
    made = (
        mutate_message(random.choice(plain), random) if plain and number % 2 else random_message(kind, random)
        for number in range(num)
    )
    return list(chain(plain, made))


async def fault_of(channel: grpc.aio.Channel, method: MethodDescriptor, message: Message, *, waits: bool) -> str:
    """Sends one message, and reads what it is answered. Returns what was wrong with that: a crash, or no answer at all;
    empty where nothing was."""

    async def only() -> AsyncIterator[Message]:
        yield message

    path = f"/{method.containing_service.full_name}/{method.name}"
    options: dict[str, Any] = {
        "request_serializer": method.input_type._concrete_class.SerializeToString,
        "response_deserializer": method.output_type._concrete_class.FromString,
    }
    timeout_s = _WAIT_S if waits else _TIMEOUT_S
    try:
        if not method.server_streaming:
            await channel.unary_unary(path, **options)(message, timeout=timeout_s)
            return ""
        if method.client_streaming:
            call = channel.stream_stream(path, **options)(only(), timeout=timeout_s)
        else:
            call = channel.unary_stream(path, **options)(message, timeout=timeout_s)
        num_answers = 0
        async for answer in call:
            if fault := _fault_within(answer):
                return fault
            num_answers += 1
            if num_answers >= _NUM_ANSWERS:
                call.cancel()
                break
    except grpc.aio.AioRpcError as error:
        is_late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not carries_error(error) and not waits
        return str(error_from_rpc(error)) if is_late or error.code() in _CRASHES else ""
    return ""


def _fault_within(answer: Message) -> str:
    """A sequence that an engine failed to compute."""
    if isinstance(answer, worker_pb2.GenerateTokensResponse):
        return next((each.error.message for each in answer.outputs if each.error.code == "internal"), "")
    return ""
