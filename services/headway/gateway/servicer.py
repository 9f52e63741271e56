"""InferenceService over gRPC: the same requests as over HTTP."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import asdict, replace
from typing import Any, TypeVar

from headway.core.errors import DeadlineExceededError, InvalidArgumentError, UnavailableError
from headway.core.sampling_defaults import SamplingDefaults
from headway.core.slo import Slo
from headway.gateway.bounds import MAX_MESSAGES, check_num_entries
from headway.gateway.caller import Caller
from headway.gateway.constraint import Constraints
from headway.gateway.infer.score import TextPairs
from headway.gateway.infer.sequences import check_num_inputs
from headway.gateway.infer.shorten import MAX_INLINE_ROWS, check_dimensions, shorten
from headway.gateway.infer.task import embedding, generating, inferring, scoring
from headway.gateway.job import Arrival, Delta, Job, Prompt, Usage
from headway.gateway.keys import authorization_of
from headway.gateway.model import ServedModel
from headway.gateway.options import DEFAULT_COMPLETION_TOKENS, Options
from headway.gateway.request_id import check_request_id, new_request_id
from headway.gateway.service import GatewayService
from headway.gateway.text.template import Message
from headway.observe.logging import request_id_var
from headway.rpc.convert import finish_reason_to_pb, guide_from_pb, logprobs_to_pb, to_pb
from headway.rpc.convert.infer import inputs_from_pb
from headway.rpc.convert.slo import slo_from_pb
from headway.rpc.interceptors import REQUEST_ID_METADATA_KEY, Context
from headway.rpc.peers import Peers
from headway.v1 import (
    common_pb2,
    controller_pb2,
    controller_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
    planner_pb2,
    router_pb2,
    router_pb2_grpc,
)

R = TypeVar("R")

_STATUS_TIMEOUT_S = 2.0


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """The inference service over gRPC: it converts messages, calls the gateway's service, and converts the results."""

    def __init__(self, service: GatewayService, *, peers: Peers) -> None:
        self._service = service
        self._peers = peers

    async def Generate(
        self, request: inference_pb2.GenerateRequest, context: Context
    ) -> AsyncIterator[inference_pb2.GenerateResponse]:
        with self._receiving(request, context, name="Generate") as arrival:
            job = await self._job(request, arrival)
            request_id = request_id_var.get()
            usage = Usage(num_prompt_tokens=job.num_prompt_tokens)
            with self._service.tenant_places.take(job.tenant, job.num_parallel):
                async with aclosing(self._service.generator.generate(job)) as stream:
                    async for deltas in stream:
                        usage.count(deltas, n=job.options.n)
                        for delta in deltas:
                            yield _delta_to_pb(delta, request_id)
            yield inference_pb2.GenerateResponse(request_id=request_id, usage=_usage_to_pb(usage))

    async def Infer(self, request: inference_pb2.InferRequest, context: Context) -> inference_pb2.InferResponse:
        with self._receiving(request, context, name="Infer") as arrival:
            check_num_inputs(len(request.inputs), field="inputs")
            model = inferring(await self._service.awake(request.model))
            dimensions = request.dimensions if request.HasField("dimensions") else None
            if dimensions is not None:
                check_dimensions(dimensions, width=embedding(model).spec.hidden_size)
            answer = await self._service.infer(
                model,
                inputs_from_pb(request.inputs),
                field="inputs",
                truncate_to=request.truncate_prompt_tokens if request.HasField("truncate_prompt_tokens") else None,
                arrival=arrival,
            )
            vectors = shorten(answer.vectors, dimensions)
            outputs = await self._service.threads.run(
                lambda: [inference_pb2.InferOutput(values=row.tolist()) for row in vectors],
                is_long=len(vectors) > MAX_INLINE_ROWS,
                tenant=arrival.tenant,
            )
            return inference_pb2.InferResponse(
                outputs=outputs,
                labels=model.spec.encoder.labels if model.spec.encoder is not None else (),
                usage=common_pb2.Usage(prompt_tokens=answer.num_tokens),
                request_id=request_id_var.get(),
            )

    async def Score(self, request: inference_pb2.ScoreRequest, context: Context) -> inference_pb2.ScoreResponse:
        with self._receiving(request, context, name="Score") as arrival:
            for field, texts in (("text_1", request.text_1), ("text_2", request.text_2)):
                check_num_inputs(len(texts), field=field)
            scores = await self._service.score(
                scoring(await self._service.awake(request.model)),
                TextPairs(firsts=request.text_1, seconds=request.text_2, first_field="text_1", second_field="text_2"),
                truncate_to=request.truncate_prompt_tokens if request.HasField("truncate_prompt_tokens") else None,
                arrival=arrival,
            )
            return inference_pb2.ScoreResponse(
                scores=scores.values.tolist(),
                usage=common_pb2.Usage(prompt_tokens=scores.num_tokens),
                request_id=request_id_var.get(),
            )

    async def Tokenize(
        self, request: inference_pb2.TokenizeRequest, context: Context
    ) -> inference_pb2.TokenizeResponse:
        caller = self._caller(self._admit(context))
        caller.check_model(request.model)
        tenant = caller.tenant
        prompt_tokenizer, slots = self._service.prompt_tokenizer, self._service.slots
        with slots.take(tenant.name, weight=tenant.weight), self._service.body_memory.hold() as grow:
            grow(request.ByteSize())
            model = await self._service.served_models.get(request.model)
            if request.WhichOneof("prompt") == "chat":
                options = {"add_generation_prompt": False}
                messages = _messages(request.chat)
                prompt = await prompt_tokenizer.chat(
                    model, messages, options=options, tenant=tenant.name, is_to_fit=False
                )
            else:
                (prompt,) = await prompt_tokenizer.prompts(
                    model, [request.text], field="text", tenant=tenant.name, is_to_fit=False
                )
            return inference_pb2.TokenizeResponse(token_ids=prompt.token_ids)

    async def ListModels(
        self, request: inference_pb2.ListModelsRequest, context: Context
    ) -> inference_pb2.ListModelsResponse:
        caller = self._caller(self._admit(context))
        await self._service.served_models.follower.catch_up()
        models = [model for model in self._service.served_models.models.values() if caller.may_use(model.name)]
        return inference_pb2.ListModelsResponse(models=map(_model_to_pb, models))

    async def GetClusterStatus(
        self, request: inference_pb2.GetClusterStatusRequest, context: Context
    ) -> inference_pb2.GetClusterStatusResponse:
        """Returns the state of the cluster; a service that is away just now leaves its part out."""
        self._service.operator_keys.check_status(_authorization(_metadata(context)))
        await self._service.served_models.follower.catch_up()
        plan = self._service.served_models.plan
        return inference_pb2.GetClusterStatusResponse(
            controller=await self._ask(
                "controller",
                controller_pb2_grpc.ControllerServiceStub,
                lambda stub, **options: stub.GetStatus(controller_pb2.GetStatusRequest(), **options),
            ),
            fleet=await self._ask(
                "router",
                router_pb2_grpc.RouterServiceStub,
                lambda stub, **options: stub.GetFleet(router_pb2.GetFleetRequest(), **options),
            ),
            plan=None if plan is None else to_pb(plan, planner_pb2.ServingPlan),
        )

    @contextmanager
    def _receiving(
        self,
        request: inference_pb2.GenerateRequest | inference_pb2.InferRequest | inference_pb2.ScoreRequest,
        context: Context,
        *,
        name: str,
    ) -> Iterator[Arrival]:
        """A request's slot, id and span."""
        arrived_s = time.monotonic()
        metadata = self._admit(context)
        given_id = request.request_id or metadata.get(REQUEST_ID_METADATA_KEY)
        request_id_var.set(check_request_id(given_id) if given_id else new_request_id())
        caller = self._caller(metadata)
        caller.check_model(request.model)
        tenant, traceparent = caller.tenant, metadata.get("traceparent", "")
        with (
            self._service.slots.take(tenant.name, weight=tenant.weight),
            self._service.body_memory.hold() as grow,
            self._service.tracing.span(f"gateway {name}", traceparent=traceparent, model=request.model) as own,
        ):
            grow(request.ByteSize())
            yield Arrival(
                at_s=arrived_s,
                slo=_slo_from_pb(request.slo).over(tenant.slo),
                priority=request.priority,
                tenant=tenant.name,
                tenant_weight=tenant.weight,
                cache_salt=tenant.cache_salt,
                traceparent=own,
            )

    def _caller(self, metadata: Mapping[str, str]) -> Caller:
        return self._service.callers.find(
            authorization=metadata.get("authorization", ""), name=metadata.get("x-headway-tenant", "")
        )

    def _admit(self, context: Context) -> dict[str, str]:
        """Checks the client's key; returns the call's metadata."""
        metadata = _metadata(context)
        self._service.keys.check(_authorization(metadata))
        return dict(metadata)

    async def _ask(self, kind: str, stub_type: Callable[..., Any], method: Callable[..., Awaitable[R]]) -> R | None:
        options = {"metadata": self._peers.metadata, "timeout": _STATUS_TIMEOUT_S}
        try:
            return await self._peers.call(kind, stub_type, lambda stub: method(stub, **options))
        except (UnavailableError, DeadlineExceededError):
            return None

    async def _job(self, request: inference_pb2.GenerateRequest, arrival: Arrival) -> Job:
        model = generating(await self._service.awake(request.model))
        defaults = model.sampling_defaults
        if request.WhichOneof("prompt") != "chat":
            defaults = replace(defaults, max_tokens=DEFAULT_COMPLETION_TOKENS)
        options = options_from_pb(request.options, defaults=defaults)
        self._service.check_options(model, options, num_prompts=1)
        prompt = await self._prompt(request, model, tenant=arrival.tenant)
        return await self._service.make_job(model, [prompt], options=options, arrival=arrival)

    async def _prompt(self, request: inference_pb2.GenerateRequest, model: ServedModel, *, tenant: str) -> Prompt:
        prompt_tokenizer = self._service.prompt_tokenizer
        match request.WhichOneof("prompt"):
            case "text":
                (prompt,) = await prompt_tokenizer.prompts(model, [request.text], field="text", tenant=tenant)
            case "token_ids":
                token_ids = request.token_ids.ids
                (prompt,) = await prompt_tokenizer.prompts(model, [token_ids], field="token_ids", tenant=tenant)
            case "chat":
                prompt = await prompt_tokenizer.chat(model, _messages(request.chat), tenant=tenant)
            case _:
                raise InvalidArgumentError(
                    "The request has no prompt.", hint="Set text, token_ids or chat.", field="prompt"
                )
        return prompt


def _metadata(context: Context) -> list[tuple[str, str]]:
    return [(key, str(value)) for key, value in context.invocation_metadata() or ()]


def _authorization(metadata: list[tuple[str, str]]) -> str:
    return authorization_of(metadata, name="authorization") or ""


def _messages(chat: inference_pb2.ChatMessages) -> list[Message]:
    check_num_entries("messages", len(chat.messages), MAX_MESSAGES)
    return [{"role": message.role, "content": message.content} for message in chat.messages]


def options_from_pb(message: inference_pb2.GenerateOptions, *, defaults: SamplingDefaults) -> Options:
    """Fields that are not set keep the model's defaults, or those of `Options`."""
    if message.HasField("beam_width"):
        defaults = defaults.of_beam_search
    names = {"logprobs": "num_logprobs", "prompt_logprobs": "num_prompt_logprobs"}
    given = {names.get(field.name, field.name): value for field, value in message.ListFields()}
    for name in ("stop", "stop_token_ids"):
        if name in given:
            given[name] = tuple(given[name])
    for name in ("logit_bias", "bad_words", "guide"):
        given.pop(name, None)
    own = asdict(defaults)
    return Options(default_max_tokens=own.pop("max_tokens"), constraints=_constraints_from_pb(message), **(own | given))


def _constraints_from_pb(message: inference_pb2.GenerateOptions) -> Constraints:
    return Constraints(
        logit_bias=tuple((entry.token_id, entry.bias) for entry in message.logit_bias),
        bad_words=tuple(message.bad_words),
        guide=guide_from_pb(message.guide) if message.HasField("guide") else None,
    )


def _slo_from_pb(message: common_pb2.Slo) -> Slo:
    for field, bound_s in message.ListFields():
        name = f"slo.{field.name}"
        if not bound_s > 0:
            raise InvalidArgumentError(f"{name} is {bound_s:g}; it must be above 0.", field=name)
    return slo_from_pb(message)


def _delta_to_pb(delta: Delta, request_id: str) -> inference_pb2.GenerateResponse:
    return inference_pb2.GenerateResponse(
        index=delta.index,
        text=delta.text,
        token_ids=delta.token_ids,
        logprobs=[logprobs_to_pb(entry) for entry in delta.logprobs],
        finish_reason=finish_reason_to_pb(delta.finish_reason),
        request_id=request_id,
        prompt_logprobs=[logprobs_to_pb(entry) for entry in delta.prompt_logprobs],
    )


def _usage_to_pb(usage: Usage) -> common_pb2.Usage:
    return common_pb2.Usage(
        prompt_tokens=usage.num_prompt_tokens,
        completion_tokens=usage.num_completion_tokens,
        cached_tokens=usage.num_cached_tokens,
    )


def _model_to_pb(model: ServedModel) -> inference_pb2.ServedModel:
    return inference_pb2.ServedModel(
        name=model.name,
        max_model_len=model.max_model_len,
        num_replicas=model.num_replicas,
        spec=to_pb(model.spec, common_pb2.ModelSpec),
    )
