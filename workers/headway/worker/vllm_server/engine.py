"""A model that a vLLM server computes, behind the seam that a worker knows engines by."""

import asyncio
import time
from dataclasses import replace

from headway.core.engine_kind import EngineKind
from headway.core.engine_server import ServerFacts
from headway.core.errors import UnavailableError
from headway.core.load_order import LoadOrder
from headway.core.model import ModelSpec
from headway.core.request import GenerationRequest, SequenceOutput
from headway.engine.stats import StepStats
from headway.worker.engine_totals import Step
from headway.worker.serving_engine import EngineFacts
from headway.worker.streamed_engine import EngineLostError, StreamedEngine
from headway.worker.vllm_server.cache_mirror import CacheMirror
from headway.worker.vllm_server.exposition import ServerLoad
from headway.worker.vllm_server.published_cache import PublishedCache
from headway.worker.vllm_server.server import ServerGoneError, VllmServer
from headway.worker.vllm_server.server_cache import ServerCache
from headway.worker.vllm_server.steps import SeenStep, Steps
from headway.worker.vllm_server.wire import body_of, is_given_up, num_cached_tokens_of, output_of

_LOOK_EVERY_S = 0.5


class VllmServerEngine(StreamedEngine):
    """Implements `ServingEngine`. Nothing is computed here: each sequence is a stream of the server's.

    A server that is gone, or was started anew, has crashed: the worker ends, and begins again once it is there.
    """

    def __init__(
        self,
        order: LoadOrder,
        spec: ModelSpec,
        *,
        server: VllmServer,
        served: ServerFacts,
        version: str,
        events: str = "",
    ) -> None:
        """`events` is where the server publishes those of its cache; empty: they are foretold."""
        facts = EngineFacts(kind=EngineKind.VLLM_SERVER, version=version, weight_bytes=spec.weight_bytes)
        super().__init__(order, spec, facts=facts)
        self._server = server
        self._cache: ServerCache
        if events:
            self._cache = PublishedCache(self.events, endpoint=events, block_size=order.block_size)
        else:
            self._cache = CacheMirror(
                self.events,
                num_blocks=order.num_blocks,
                block_size=order.block_size,
                is_caching=served.has_prefix_cache,
            )
        self._steps = Steps()
        self._load = ServerLoad()
        self._num_preempted = 0
        self._num_queries = 0
        self._num_hits = 0

    async def stop(self) -> None:
        self._watch.cancel()
        self.cancel(list(self._totals.live))
        await self._cache.stop()
        await self._server.close()

    def _begin(self) -> None:
        self._cache.start()
        self._watch = self._loop.create_task(self._watch_server(), name="vllm-server-watch")

    def _wake_up(self) -> None:
        self._book(self._steps.close())
        self._steps.wake_up(time.perf_counter())

    async def _watch_server(self) -> None:
        """Also a server that dies while nobody asks it anything is noticed."""
        try:
            while True:
                await self._look()
                await asyncio.sleep(_LOOK_EVERY_S)
        except EngineLostError as error:
            self._crash(error)

    async def _look(self) -> None:
        """EngineLostError where the server does not answer twice in a row, or has forgotten what it has done."""
        try:
            load = await self._server.load()
        except ServerGoneError:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                load = await self._server.load()
            except ServerGoneError as error:
                raise EngineLostError(error) from error
        if load.num_query_tokens < self._load.num_query_tokens:
            raise EngineLostError("the server was started anew")
        self._num_preempted += load.num_preemptions - self._load.num_preemptions if self._load.num_query_tokens else 0
        if load != self._load:
            self._note_sign()
        self._load = load

    async def _generate(self, request: GenerationRequest, *, num_left: int) -> None:
        try:
            with self._computing():
                await self._stream(request, num_left)
        except ServerGoneError as error:
            await self._look()
            raise UnavailableError(f"vLLM's server has broken off: {error}.", hint="Try again.") from error

    async def _stream(self, request: GenerationRequest, num_left: int) -> None:
        """Tells how many tokens of the prompt were cached with the last output: the server tells it then."""
        tokens = [*request.prompt_token_ids, *request.output_token_ids]
        num_prompt_tokens = len(tokens)
        num_cached = self._cache.num_found(tokens, salt=request.cache_salt)
        last: SequenceOutput | None = None
        body = body_of(request, num_left=num_left, eos_token_ids=self._spec.eos_token_ids)
        async for chunk in self._server.generate(body):
            for choice in chunk["choices"]:
                if is_given_up(choice):
                    raise UnavailableError("vLLM's server has given the request up.", hint="Try again.")
                output = output_of(request, choice)
                if output.token_ids:
                    self._note(request, tokens, output, num_prompt_tokens, num_cached)
                    tokens += output.token_ids
                if output.finish_reason is not None:
                    last = output
                else:
                    self._deliver(output)
            if last is not None and not chunk["choices"]:
                told = num_cached_tokens_of(chunk)
                last = replace(last, num_cached_tokens=num_cached if told is None else told)
        if last is None:
            raise ServerGoneError("the stream ended early")
        self._end(request, tokens, last)

    def _note(
        self,
        request: GenerationRequest,
        tokens: list[int],
        output: SequenceOutput,
        num_prompt_tokens: int,
        num_cached: int,
    ) -> None:
        """Counts tokens that come after others."""
        self._book(self._steps.note(request.request_id, len(output.token_ids), now_s=time.perf_counter()))
        if len(tokens) == num_prompt_tokens:
            self._steps.note_prompt(num_prompt_tokens, num_cached=num_cached)
            self._cache.store(tokens, salt=request.cache_salt)
            self._num_queries += num_prompt_tokens

    def _end(self, request: GenerationRequest, tokens: list[int], last: SequenceOutput) -> None:
        """The last token of a sequence is not computed."""
        self._cache.store(tokens[:-1], salt=request.cache_salt)
        self._num_hits += last.num_cached_tokens
        if len(self._totals.live) == 1:
            self._book(self._steps.close())
        self._deliver(last)

    def _book(self, seen: SeenStep | None) -> None:
        if seen is None:
            return
        num_used = sum(-(-live.num_tokens // self._order.block_size) for live in self._totals.live.values())
        self._totals.note_step(
            Step(
                num_running=seen.num_sequences,
                num_waiting=0,  # whoever lives and does not run
                num_prefill_tokens=seen.num_prefill_tokens,
                num_prefill_pairs=seen.num_prefill_pairs,
                num_decodes=seen.num_decodes,
                num_steps=seen.num_steps,
                duration_s=seen.duration_s,
                kv_usage=min(1.0, max(num_used / self._order.num_blocks, self._load.kv_usage)),
                num_prefix_queries=self._num_queries,
                num_prefix_hits=self._num_hits,
                num_preempted=self._num_preempted,
            )
        )
        self._num_queries = self._num_hits = self._num_preempted = 0

    def _stats(self) -> StepStats:
        return self._totals.stats(num_cached_blocks=self._cache.num_blocks)
