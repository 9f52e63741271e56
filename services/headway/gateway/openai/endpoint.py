"""The generation endpoints: body in, answer out."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from starlette.types import Send

from headway.gateway.infer.task import generating
from headway.gateway.job import Arrival, Job
from headway.gateway.openai.answer import Events, send_document, send_events
from headway.gateway.openai.chat import ChatFormat
from headway.gateway.openai.completion import CompletionFormat
from headway.gateway.openai.exchange import Exchange
from headway.gateway.openai.format import Format
from headway.gateway.openai.schema import ChatRequest, CompletionRequest, GenerationRequest
from headway.gateway.openai.tool_chat import ToolChatFormat
from headway.gateway.service import GatewayService
from headway.gateway.tools.use import tool_use

R = TypeVar("R", bound=GenerationRequest)

Prepare: TypeAlias = Callable[[GatewayService, R, Arrival], Awaitable[tuple[Job, Format]]]


class Answer(Exchange[R]):
    """Streams tokens, or sends one document.

    Args:
        prepare: makes the job and the form of its answer.
    """

    def __init__(self, service: GatewayService, kind: type[R], prepare: Prepare[R]) -> None:
        super().__init__(service, kind)
        self._prepare = prepare

    async def reply(self, request: R, arrival: Arrival, send: Send) -> None:
        job, form = await self._prepare(self.service, request, arrival)
        if request.stream:
            events = Events(job, form, write=self.write_chunk)
            deltas = self.service.generate(job, sink=events.writer)
            await send_events(send, events, deltas, form=form, with_usage=request.stream_options.include_usage)
        else:
            await send_document(send, job, self.service.generate(job), form=form)


async def prepare_completion(
    service: GatewayService, request: CompletionRequest, arrival: Arrival
) -> tuple[Job, Format]:
    model = generating(await service.catalogue.get(request.model))
    prompts = []
    for i, prompt in enumerate(request.prompt):
        field = "prompt" if len(request.prompt) == 1 else f"prompt[{i}]"
        if isinstance(prompt, str):
            prompts.append(await service.encoder.text(model, prompt, field=field))
        else:
            prompts.append(service.encoder.token_ids(model, prompt, field=field))
    job = await service.make_job(model, prompts, options=request.options, arrival=arrival)
    return job, CompletionFormat(job, echo=request.echo, with_usage=request.stream_options.include_usage)


async def prepare_chat(service: GatewayService, request: ChatRequest, arrival: Arrival) -> tuple[Job, Format]:
    model = generating(await service.catalogue.get(request.model))
    messages = [message.document(field=f"messages[{i}]") for i, message in enumerate(request.messages)]
    options, toolbox, with_usage = request.options, request.toolbox, request.stream_options.include_usage
    if toolbox is None:
        prompt = await service.encoder.chat(model, messages, options=request.chat_template_kwargs)
        job = await service.make_job(model, [prompt], options=options, arrival=arrival)
        return job, ChatFormat(job, with_usage=with_usage)
    use = await tool_use(toolbox, model=model, options=options)
    prompt = await service.encoder.chat(model, messages, tools=use.documents, options=request.chat_template_kwargs)
    job = await service.make_job(model, [prompt], options=use.constrain(options), arrival=arrival)
    return job, ToolChatFormat(job, use=use, with_usage=with_usage)
