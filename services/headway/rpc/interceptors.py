"""Server interceptors around every call: errors become statuses, calls are timed, request ids reach the logs."""

import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import grpc

from headway.core.errors import ErrorCode, HeadwayError, PermissionDeniedError, UnauthenticatedError
from headway.observe.logging import request_id_var
from headway.observe.metrics import RPC_SECONDS
from headway.rpc.credentials import Credentials
from headway.rpc.permissions import may_call
from headway.rpc.status import ERROR_METADATA_KEY, STATUS_BY_CODE, error_to_pb

REQUEST_ID_METADATA_KEY = "x-request-id"
EPOCH_METADATA_KEY = "x-headway-controller-epoch"
_AUTH_METADATA_KEY = "authorization"
_SCHEME = "Bearer "
_OPEN_SERVICES = ("/grpc.health.v1.Health/",)

_TOKEN_HINT = (
    "It is in the file auth-token of the stack's state directory: name that with --state-dir, "
    "set HEADWAY_AUTH_TOKEN, or send 'authorization: Bearer TOKEN' as metadata."
)

# What changes the stack, by the services that people command. Workers are commanded by these.
_AUDITED = re.compile(
    r"/headway\.v1\.(Controller|KvCache|Planner|Profiler)Service/"
    r"(Apply|Cancel|Capture|Create|Forget|Import|Move|Pin|Profile|Propose|Replace|Revoke|Set|Shutdown|Start|Stop|Unpin)"
)

log = logging.getLogger(__name__)
audit_log = logging.getLogger("headway.audit")

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every method: errors become status, unexpected ones are logged, calls timed, request ids set. Whatever
    changes the stack is told to the log `headway.audit`, refused calls among it.

    Args:
        credentials: by which callers are known, who send theirs as `authorization: Bearer ...`; None accepts all.
            Every method of every service asks for them, but for health checks, and serves those that may call it.
    """

    def __init__(self, credentials: Credentials | None = None) -> None:
        self._credentials = credentials

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.startswith(_OPEN_SERVICES):
            return handler
        return self._wrap(handler, method)

    def _wrap(self, handler: Any, method: str) -> Any:
        if handler.response_streaming:
            inner = handler.unary_stream or handler.stream_stream

            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                with self._around(method, context) as call:
                    try:
                        call.caller = self._authorise(method, context)
                        async for response in inner(request, context):
                            yield response
                    except HeadwayError as error:
                        await call.abort(error)
                    except Exception as error:  # noqa: BLE001 - root of a call
                        await call.crash(error)

            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
            return make(stream, handler.request_deserializer, handler.response_serializer)

        inner_unary = handler.unary_unary or handler.stream_unary

        async def unary(request: Any, context: Any) -> Any:
            with self._around(method, context) as call:
                try:
                    call.caller = self._authorise(method, context)
                    return await inner_unary(request, context)
                except HeadwayError as error:
                    await call.abort(error)
                except Exception as error:  # noqa: BLE001 - root of a call
                    await call.crash(error)

        make_unary = (
            grpc.stream_unary_rpc_method_handler if handler.request_streaming else grpc.unary_unary_rpc_method_handler
        )
        return make_unary(unary, handler.request_deserializer, handler.response_serializer)

    def _authorise(self, method: str, context: Context) -> str:
        """The caller's role."""
        if self._credentials is None:
            return "anybody"
        given = str(dict(context.invocation_metadata() or ()).get(_AUTH_METADATA_KEY, ""))
        if not given:
            raise UnauthenticatedError("The call carries no token of this stack.", hint=_TOKEN_HINT)
        role = self._credentials.role_of(given[len(_SCHEME) :]) if given.startswith(_SCHEME) else None
        if role is None:
            raise UnauthenticatedError("The call's token is not this stack's.", hint=_TOKEN_HINT)
        if not may_call(role, method):
            raise PermissionDeniedError(
                f"A {role} may not call {method.rpartition('.')[2]}.", hint="The stack's own token opens all methods."
            )
        return role

    @contextmanager
    def _around(self, method: str, context: Any) -> Iterator["_Call"]:
        metadata = dict(context.invocation_metadata() or ())
        request_id_var.set(str(metadata.get(REQUEST_ID_METADATA_KEY, "")))
        call = _Call(method, context)
        is_audited = _AUDITED.match(method) is not None
        peer = context.peer() if is_audited else ""  # now: to ask a call that is over ends the process
        started = time.perf_counter()
        try:
            yield call
        finally:
            RPC_SECONDS.labels(method, call.outcome).observe(time.perf_counter() - started)
            if is_audited:
                audit_log.info("%s by %s, %s: %s", method.rpartition(".")[2], peer, call.caller, call.outcome)


class _Call:
    """One call in progress; remembers how it ended for the metrics."""

    def __init__(self, method: str, context: Context) -> None:
        self._method = method
        self._context = context
        self.outcome = "ok"
        self.caller = "unknown"

    async def abort(self, error: HeadwayError) -> None:
        self.outcome = error.code
        if error.code is ErrorCode.INTERNAL:
            log.error("%s failed: %s", self._method, error)
        metadata = ((ERROR_METADATA_KEY, error_to_pb(error).SerializeToString()),)
        await self._context.abort(STATUS_BY_CODE[error.code], str(error), trailing_metadata=metadata)

    async def crash(self, error: Exception) -> None:
        if isinstance(error, grpc.aio.AbortError):
            raise error
        self.outcome = ErrorCode.INTERNAL
        log.error("%s crashed", self._method, exc_info=error)
        await self._context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
