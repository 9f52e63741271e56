"""The generation endpoints: body in, answer out."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias, TypeVar

from starlette.types import Send

from headway.core.answer_record import AnswerRecord
from headway.core.errors import InvalidArgumentError
from headway.gateway.answer_journal import AnswerJournal
from headway.gateway.infer.task import generating
from headway.gateway.job import Arrival, Job
from headway.gateway.openai.answer import Events, send_document, send_events
from headway.gateway.openai.chat import ChatFormat
from headway.gateway.openai.completion import CompletionFormat
from headway.gateway.openai.field_names import told_as
from headway.gateway.openai.format import Format
from headway.gateway.openai.handler import RequestHandler
from headway.gateway.openai.parsed_chat import ParsedChatFormat
from headway.gateway.openai.response import ResponseFormat
from headway.gateway.openai.response_schema import ResponseRequest
from headway.gateway.openai.resumption import ResumableEvents, Resumption
from headway.gateway.openai.schema import ChatRequest, CompletionRequest, GenerationRequest
from headway.gateway.service import GatewayService
from headway.gateway.tools.parser import AnswerParser, WordParser
from headway.gateway.tools.use import parser_of, shown_for_parser, tool_use

R = TypeVar("R", bound=GenerationRequest)

# Messages; of more of them the documents are made in another thread.
_MAX_INLINE = 256

Prepare: TypeAlias = Callable[[GatewayService, R, Arrival], Awaitable[tuple[Job, Format]]]


class GenerationHandler(RequestHandler[R]):
    """Streams tokens, or sends one document.

    Args:
        prepare: makes the job and the form of its answer.
    """

    def __init__(self, service: GatewayService, kind: type[R], prepare: Prepare[R]) -> None:
        super().__init__(service, kind)
        self._prepare = prepare

    async def reply(self, request: R, arrival: Arrival, send: Send) -> None:
        if self.resumption is not None:
            arrival = replace(arrival, journal=await self._journal(self.resumption, request, arrival))
        with told_as(request.field_names):
            job, form = await self._prepare(self.service, request, arrival)
        for variable, name in request.template_fields.items():
            if job.model.template is not None and variable not in job.model.template.variables:
                self.ignored.add(name, why=f"The chat template of '{job.model.name}' takes no {variable}.")
        with self.service.tenant_places.take(job.tenant, job.num_parallel):
            await self._send(request, job, form, send)

    async def _journal(self, resumption: Resumption, request: R, arrival: Arrival) -> AnswerJournal:
        if not request.stream or isinstance(request, ResponseRequest):
            raise InvalidArgumentError(
                "Only streams of completions and chat completions can be taken up again.",
                hint="Set stream to true, or leave the header out.",
                field="stream",
            )
        book, tenant, body_hash = self.service.answers, arrival.tenant, resumption.body_hash
        if resumption.answer_id:
            return await AnswerJournal.take(book, resumption.answer_id, tenant=tenant, body_hash=body_hash)
        record = AnswerRecord(
            answer_id=self.service.new_id(), tenant=tenant, body_hash=body_hash, created_s=int(time.time())
        )
        return AnswerJournal(book, record)

    async def _send(self, request: R, job: Job, form: Format, send: Send) -> None:
        generator = self.service.generator
        if request.stream:
            if self.resumption is not None and job.journal is not None:
                seen = self.resumption.num_seen
                events: Events = ResumableEvents(job, form, write=self.write_chunk, journal=job.journal, num_seen=seen)
                deltas = generator.generate(job)
            else:
                events = Events(job, form, write=self.write_chunk)
                deltas = generator.generate(job, text_sink=None if request.parts.tells_tokens else events.writer)
            await send_events(send, events, deltas, form=form, headers=self.ignored.headers)
        else:
            deltas, threads = generator.generate(job), self.service.threads
            await send_document(send, job, deltas, form=form, threads=threads, headers=self.ignored.headers)


async def prepare_completion(
    service: GatewayService, request: CompletionRequest, arrival: Arrival
) -> tuple[Job, Format]:
    model = generating(await service.awake(request.model))
    options = request.options(model.sampling_defaults)
    service.check_options(model, options, num_prompts=len(request.prompt))
    prompts = await service.prompt_tokenizer.prompts(model, request.prompt, field="prompt", tenant=arrival.tenant)
    job = await service.make_job(model, prompts, options=options, arrival=arrival)
    return job, CompletionFormat(job, echo=request.echo, parts=request.parts)


async def prepare_chat(service: GatewayService, request: ChatRequest, arrival: Arrival) -> tuple[Job, Format]:
    job, make_parser = await _converse(service, request, arrival)
    if make_parser is None:
        return job, ChatFormat(job, parts=request.parts)
    return job, ParsedChatFormat(job, make_parser=make_parser, parts=request.parts)


async def prepare_response(service: GatewayService, request: ResponseRequest, arrival: Arrival) -> tuple[Job, Format]:
    job, make_parser = await _converse(service, request, arrival)
    return job, ResponseFormat(job, request=request, make_parser=make_parser or WordParser)


async def _converse(
    service: GatewayService, request: ChatRequest | ResponseRequest, arrival: Arrival
) -> tuple[Job, Callable[[], AnswerParser] | None]:
    """The job of a conversation, and what makes a parser for each answer; None where they are words alone."""
    model = generating(await service.awake(request.model))
    options, toolbox = request.options(model.sampling_defaults), request.toolbox
    service.check_options(model, options, num_prompts=1)
    messages = await service.threads.run(
        request.chat_messages, is_long=request.num_messages > _MAX_INLINE, tenant=arrival.tenant
    )
    use = None if toolbox is None else await tool_use(toolbox, model=model, options=options)
    if use is not None:
        options = use.constrain(options)
        service.check_options(model, options, num_prompts=1)
    prompt = await service.prompt_tokenizer.chat(
        model,
        messages,
        tools=None if use is None else use.documents,
        options=request.template_variables,
        continue_final_message=request.continue_final_message,
        tenant=arrival.tenant,
    )
    make_parser = parser_of(
        model, use, options=options, prompt=prompt.text or "", continues=request.continue_final_message
    )
    job = await service.make_job(model, [prompt], options=shown_for_parser(model, options), arrival=arrival)
    return job, make_parser
