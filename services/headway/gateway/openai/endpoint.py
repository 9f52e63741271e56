"""The generation endpoints: body in, answer out."""

import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeAlias, TypeVar

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.core.errors import InvalidArgumentError
from headway.core.slo import Slo
from headway.gateway.disconnect import ClientLeftError, while_connected
from headway.gateway.job import Arrival, Job
from headway.gateway.openai.answer import send_document, send_events
from headway.gateway.openai.body import read_json
from headway.gateway.openai.chat import ChatFormat
from headway.gateway.openai.completion import CompletionFormat
from headway.gateway.openai.format import Format
from headway.gateway.openai.schema import ChatRequest, CompletionRequest, GenerationRequest, read_request
from headway.gateway.service import GatewayService

log = logging.getLogger(__name__)

R = TypeVar("R", bound=GenerationRequest)

Prepare: TypeAlias = Callable[[GatewayService, R, Arrival], Awaitable[tuple[Job, Format]]]


class Answer(Response, Generic[R]):
    """Reads the request and answers it itself, straight to the connection: no layer sees each token.

    Args:
        kind: what the body should be.
        prepare: makes the job and the form of its answer.
    """

    def __init__(self, service: GatewayService, kind: type[R], prepare: Prepare[R]) -> None:
        super().__init__()
        self._service = service
        self._kind = kind
        self._prepare = prepare

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        arrived_s = time.monotonic()
        try:
            with self._service.slots.take():
                body = await read_json(scope, receive, max_bytes=self._service.max_body_bytes)
                async with while_connected(receive):
                    await self._answer(body, Headers(scope=scope), send, arrived_s=arrived_s)
        except ClientLeftError:
            log.info("the client left")

    async def _answer(self, body: dict[str, Any], headers: Headers, send: Send, *, arrived_s: float) -> None:
        service = self._service
        slo = slo_from_headers(headers)
        request = read_request(self._kind, body)
        with service.tracing.span(
            f"gateway {self._kind.__name__}", traceparent=headers.get("traceparent", ""), model=request.model
        ) as traceparent:
            arrival = Arrival(at_s=arrived_s, slo=slo, traceparent=traceparent)
            job, form = await self._prepare(service, request, arrival)
            deltas = service.generate(job)
            if request.stream:
                with_usage = request.stream_options.include_usage
                await send_events(send, job, deltas, form=form, with_usage=with_usage)
            else:
                await send_document(send, job, deltas, form=form)


async def prepare_completion(
    service: GatewayService, request: CompletionRequest, arrival: Arrival
) -> tuple[Job, Format]:
    model = service.catalogue.get(request.model)
    prompts = []
    for i, prompt in enumerate(request.prompt):
        field = "prompt" if len(request.prompt) == 1 else f"prompt[{i}]"
        if isinstance(prompt, str):
            prompts.append(await service.encoder.text(model, prompt, field=field))
        else:
            prompts.append(service.encoder.token_ids(model, prompt, field=field))
    job = service.make_job(model, prompts, options=request.options, arrival=arrival)
    return job, CompletionFormat(job, echo=request.echo, with_usage=request.stream_options.include_usage)


async def prepare_chat(service: GatewayService, request: ChatRequest, arrival: Arrival) -> tuple[Job, Format]:
    model = service.catalogue.get(request.model)
    messages = [message.document for message in request.messages]
    prompt = await service.encoder.chat(model, messages, options=request.chat_template_kwargs)
    job = service.make_job(model, [prompt], options=request.options, arrival=arrival)
    return job, ChatFormat(job, with_usage=request.stream_options.include_usage)


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
