"""gRPC calls before their messages are here: who calls is known first, and a message has a time by which it is due.

gRPC reads the message of a call, which may be as large as a body, before its method hears of the call. So these methods
are served as ones that read their message themselves.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import grpc

from headway.core.errors import DeadlineExceededError, InvalidArgumentError
from headway.rpc.interceptors import Context

Metadata: TypeAlias = list[tuple[str, str]]

_NUM_AT_ONCE = 32
_WITHOUT_KEY = ("/grpc.health.v1.Health/", "/headway.v1.InferenceService/GetClusterStatus")


class MessageLimits(grpc.aio.ServerInterceptor):
    """Lets each tenant, and each address of those that are none, send a few messages at once; the others of its calls
    wait, unread.

    Args:
        tenant_of: of a call's metadata; raises the HeadwayError of a caller that is not let in.
        timeout_s: in which a message comes whole, from when it is its turn.
    """

    def __init__(self, *, tenant_of: Callable[[Metadata], str], timeout_s: float = 20.0) -> None:
        self._tenant_of = tenant_of
        self._timeout_s = timeout_s
        self._turns = WeakValueDictionary[str, asyncio.Semaphore]()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming:
            return handler
        needs_key = not handler_call_details.method.startswith(_WITHOUT_KEY)
        coders = handler.request_deserializer, handler.response_serializer

        async def unary(requests: Any, context: Context) -> Any:
            message = await self._message(requests, context, needs_key=needs_key)
            return await handler.unary_unary(message, context)

        async def stream(requests: Any, context: Context) -> AsyncIterator[Any]:
            message = await self._message(requests, context, needs_key=needs_key)
            async for response in handler.unary_stream(message, context):
                yield response

        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(stream, *coders)
        return grpc.stream_unary_rpc_method_handler(unary, *coders)

    async def _message(self, requests: Any, context: Context, *, needs_key: bool) -> Any:
        metadata = [(key, str(value)) for key, value in context.invocation_metadata() or ()]
        tenant = self._tenant_of(metadata) if needs_key else ""
        turn = self._turns.setdefault(tenant or context.peer().rpartition(":")[0], asyncio.Semaphore(_NUM_AT_ONCE))
        async with turn:
            try:
                return await asyncio.wait_for(anext(aiter(requests)), self._timeout_s)
            except TimeoutError:
                raise DeadlineExceededError(
                    "The message of the call did not arrive in time.", hint="Send it whole, and sooner."
                ) from None
            except StopAsyncIteration:
                raise InvalidArgumentError("The call has no message.", hint="Send one.") from None
