"""One HTTP request and its answer, whatever it asks a model for."""

import logging
import math
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, TypeVar

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.core.errors import InvalidArgumentError
from headway.core.slo import Slo
from headway.gateway.caller import Caller
from headway.gateway.disconnect import ClientLeftError, while_connected
from headway.gateway.http_protocol import WRITE_CHUNK
from headway.gateway.job import Arrival
from headway.gateway.openai.body import parse_json, read_body
from headway.gateway.openai.ignored import IgnoredFields
from headway.gateway.openai.resumption import Resumption, resumption_of
from headway.gateway.openai.schema import read_request
from headway.gateway.openai.size import check_depth, check_size
from headway.gateway.openai.strict import ModelRequest
from headway.gateway.service import GatewayService

log = logging.getLogger(__name__)

R = TypeVar("R", bound=ModelRequest)

# About a millisecond's work; what is longer is read in another thread.
_MAX_INLINE_BYTES = 32 * 1024


class RequestHandler(Response, Generic[R]):
    """Reads the request and answers it itself, straight to the connection: no layer sees each token.

    Args:
        kind: what the body should be.

    Attributes:
        write_chunk: see `headway.gateway.http_protocol.GuardedHttpProtocol`.
        ignored: fields of the request that have no effect.
        resumption: what the request asks for of a stream that can be taken up again.
    """

    write_chunk: Callable[[bytes], None]
    resumption: Resumption | None

    def __init__(self, service: GatewayService, kind: type[R]) -> None:
        super().__init__()
        self.service = service
        self.ignored = IgnoredFields(is_strict=service.strict_fields)
        self._kind = kind

    @abstractmethod
    async def reply(self, request: R, arrival: Arrival, send: Send) -> None:
        """Answers; a HeadwayError that is raised before anything is sent becomes an error document."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        arrived_s = time.monotonic()
        self.write_chunk = scope["extensions"][WRITE_CHUNK]["write"]
        headers = Headers(scope=scope)
        caller = self.service.callers.find(
            authorization=headers.get("authorization", ""), name=headers.get("x-headway-tenant", "")
        )
        try:
            with self.service.body_memory.hold() as grow:
                content = await read_body(scope, receive, max_bytes=self.service.max_body_bytes, grow=grow)
                with self.service.slots.take(caller.tenant.name, weight=caller.tenant.weight):
                    async with while_connected(receive):
                        self.resumption = resumption_of(headers, scope["path"], content)
                        await self._answer(content, headers, caller, send, arrived_s=arrived_s)
        except ClientLeftError:
            log.info("the client left")

    async def _answer(self, content: bytes, headers: Headers, caller: Caller, send: Send, *, arrived_s: float) -> None:
        slo = slo_from_headers(headers)
        is_long = len(content) > _MAX_INLINE_BYTES
        tenant = caller.tenant
        request = await self.service.threads.run(lambda: self._read(content), is_long=is_long, tenant=tenant.name)
        caller.check_model(request.model)
        if request.slo_ms is not None:
            slo = replace(slo, e2e_s=request.slo_ms / 1000)
        arrival = Arrival(
            at_s=arrived_s,
            slo=slo.over(tenant.slo),
            priority=request.priority,
            tenant=tenant.name,
            tenant_weight=tenant.weight,
            cache_salt=tenant.cache_salt,
        )
        with self.service.tracing.span(
            f"gateway {self._kind.__name__}", traceparent=headers.get("traceparent", ""), model=request.model
        ) as traceparent:
            await self.reply(request, replace(arrival, traceparent=traceparent), send)

    def _read(self, content: bytes) -> R:
        body = parse_json(content)
        check_depth(body, content)
        check_size(body, max_sequences=self.service.max_sequences)
        return read_request(self._kind, body, ignored=self.ignored)


def slo_from_headers(headers: Headers) -> Slo:
    """x-headway-slo-ttft-ms and x-headway-slo-tpot-ms, in milliseconds."""
    return Slo(ttft_s=_bound_s(headers, "x-headway-slo-ttft-ms"), tpot_s=_bound_s(headers, "x-headway-slo-tpot-ms"))


def _bound_s(headers: Headers, name: str) -> float | None:
    text = headers.get(name)
    if text is None:
        return None
    try:
        bound_ms = float(text)
    except ValueError:
        bound_ms = math.nan
    if not 0 < bound_ms < math.inf:
        raise InvalidArgumentError(
            f"The header {name} is '{text[:100]}'.", hint="Send a number of milliseconds above 0.", field=name
        )
    return bound_ms / 1000
