"""A model that vLLM computes, behind the seam that a worker knows engines by."""

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from vllm.exceptions import VLLMClientError
from vllm.inputs import TokensPrompt
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError
from vllm.v1.metrics.stats import SchedulerStats

from headway.core.engine_kind import EngineKind, Feature, lacks
from headway.core.errors import AlreadyExistsError, HeadwayError, InvalidArgumentError
from headway.core.kv import KvUsage
from headway.core.line import UNBOUND_WAIT_S, QueuePolicy
from headway.core.load_order import LoadOrder
from headway.core.model import ModelSpec
from headway.core.request import FinishReason, GenerationRequest, SequenceOutput
from headway.engine.events import BlockEventLog
from headway.engine.limits import check_tokens
from headway.engine.sequence import Sequence as EngineSequence
from headway.engine.stats import StepStats
from headway.worker.engine_thread import StepListener
from headway.worker.serving_engine import EngineFacts
from headway.worker.vllm.adapters import Adapters
from headway.worker.vllm.block_feed import BlockFeed
from headway.worker.vllm.block_names import BlockNames
from headway.worker.vllm.books import Books, Step
from headway.worker.vllm.sampling import output_of, sampling_of

log = logging.getLogger(__name__)

_WATCH_EVERY_S = 0.5


class VllmEngine:
    """Implements `ServingEngine`. vLLM's scheduler runs in a process of its own; here is one task for each sequence.

    Outputs of one wake-up go to the listener together.
    """

    def __init__(
        self,
        order: LoadOrder,
        spec: ModelSpec,
        *,
        llm: AsyncLLM,
        feed: BlockFeed,
        directory: Path,
        version: str,
        weight_bytes: int,
        queue_policy: QueuePolicy,
    ) -> None:
        self.facts = EngineFacts(kind=EngineKind.VLLM, version=version, weight_bytes=weight_bytes)
        self.events = BlockEventLog()
        self._order = order
        self._spec = spec
        self._llm = llm
        self._feed = feed
        self._directory = directory
        self._queue_policy = queue_policy
        self._names = BlockNames(self.events, block_size=order.block_size)
        self._books = Books(order.num_blocks)
        self._adapters = Adapters(llm)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._outputs: list[SequenceOutput] = []
        self._is_flushing = False
        self._has_crashed = False
        self._last_step_s = 0.0

    def start(self, listener: StepListener) -> StepStats:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._feed.start(self._names)
        self._watch = self._loop.create_task(self._watch_engine(), name="vllm-watch")
        return self._stats()

    def submit(
        self, requests: Sequence[GenerationRequest], *, refuse: Callable[[Sequence[str], HeadwayError], None]
    ) -> None:
        try:
            for request in requests:
                self._check(request)
        except HeadwayError as error:
            refuse([request.request_id for request in requests], error)
            return
        if not self._books.live:
            self._last_step_s = time.perf_counter()
        for request in requests:
            self._books.begin(request)
            task = self._loop.create_task(self._run(request, refuse))
            self._tasks[request.request_id] = task

    def cancel(self, request_ids: Sequence[str], *, on_ended: Callable[[Sequence[str]], None] | None = None) -> None:
        ended = [request_id for request_id in request_ids if self._books.end(request_id)]
        for request_id in ended:
            self._tasks.pop(request_id).cancel()  # vLLM aborts what nobody listens to
        if on_ended is not None:
            self._loop.call_soon(on_ended, ended)
        if ended and not self._books.live:
            self._loop.call_soon(lambda: self._listener.on_idle(self._stats()))

    async def usage(self, *, worker_id: str) -> KvUsage:
        stats = self._stats()
        return KvUsage(
            worker_id=worker_id,
            model=self._order.model,
            block_size=self._order.block_size,
            num_used_blocks=stats.num_used_blocks,
            num_cached_blocks=stats.num_cached_blocks,
            num_free_blocks=stats.num_free_blocks,
            num_prefix_query_tokens=stats.num_prefix_queries,
            num_prefix_hit_tokens=stats.num_prefix_hits,
            num_recompute_preemptions=stats.num_preemptions,
            num_running=stats.num_running,
            num_waiting=stats.num_waiting,
        )

    async def measure(self, **_: int) -> float:
        raise lacks(EngineKind.VLLM, Feature.MEASURED_STEPS, model=self._order.model)

    async def stop(self) -> None:
        self._watch.cancel()
        self.cancel(list(self._books.live))
        await self._feed.stop()
        await asyncio.to_thread(self._llm.shutdown)
        shutil.rmtree(self._directory, ignore_errors=True)

    def note_iteration(self, stats: SchedulerStats) -> None:
        """vLLM's scheduler has done a step; called on the event loop, before its outputs are handed out."""
        now_s = time.perf_counter()
        details, prefix = stats.iteration_details, stats.prefix_cache_stats
        self._books.note_step(
            Step(
                num_running=stats.num_running_reqs,
                num_waiting=stats.num_waiting_reqs,
                num_prefill_tokens=0 if details is None else details.num_ctx_tokens,
                num_decodes=0 if details is None else details.num_generation_tokens,
                duration_s=now_s - self._last_step_s,
                kv_usage=stats.kv_cache_usage,
                num_prefix_queries=prefix.queries if prefix is not None else 0,
                num_prefix_hits=prefix.hits if prefix is not None else 0,
                num_preempted=prefix.preempted_requests if prefix is not None else 0,
            )
        )
        self._last_step_s = now_s
        self._flush_soon()

    async def _watch_engine(self) -> None:
        """Also an engine process that dies while nobody asks it anything is noticed."""
        while not self._llm.errored:  # noqa: ASYNC110 - vLLM tells nobody
            await asyncio.sleep(_WATCH_EVERY_S)
        self._crash(EngineDeadError())

    def _check(self, request: GenerationRequest) -> None:
        """vLLM's engine process dies of token ids that are not in the vocabulary, so nothing unfit goes there."""
        if request.request_id in self._books.live:
            raise AlreadyExistsError(
                f"Request '{request.request_id}' has not ended yet.",
                hint="Use a new request id for every request.",
                field="request_id",
            )
        pool_len = self._order.num_blocks * self._order.block_size
        check_tokens(
            EngineSequence.from_request(request, arrival_s=0.0),
            max_sequence_len=min(self._order.max_model_len, pool_len),
            vocab_size=self._spec.vocab_size,
        )
        if any(not 0 <= token_id < self._spec.vocab_size for token_id, _ in request.sampling.logit_bias):
            raise InvalidArgumentError("logit_bias names a token that the model does not have.", field="logit_bias")

    async def _run(self, request: GenerationRequest, refuse: Callable[[Sequence[str], HeadwayError], None]) -> None:
        try:
            await self._generate(request)
        except VLLMClientError as error:
            if self._books.end(request.request_id):
                refuse([request.request_id], InvalidArgumentError(f"vLLM refuses the request: {error}"))
        except HeadwayError as error:
            if self._books.end(request.request_id):
                refuse([request.request_id], error)
        except (EngineDeadError, EngineGenerateError) as error:
            self._crash(error)
        finally:
            if self._tasks.get(request.request_id) is asyncio.current_task():
                del self._tasks[request.request_id]

    async def _generate(self, request: GenerationRequest) -> None:
        num_left = self._num_left(request)
        if num_left <= 0 or self._is_stopped(request):
            reason = FinishReason.LENGTH if num_left <= 0 else FinishReason.STOP
            stop = request.output_token_ids[-1] if reason is FinishReason.STOP else None
            self._deliver(SequenceOutput(request.request_id, finish_reason=reason, stop_token_id=stop))
            return
        tokens = [*request.prompt_token_ids, *request.output_token_ids]
        prompt = TokensPrompt(prompt_token_ids=tokens)
        if request.cache_salt:
            prompt["cache_salt"] = request.cache_salt
        sampling = sampling_of(request, max_tokens=num_left, eos_token_ids=self._spec.eos_token_ids)
        lora = await self._adapters.use(request.adapter)
        is_first = True
        async for output in self._llm.generate(
            prompt, sampling, request.request_id, lora_request=lora, priority=self._priority(request)
        ):
            self._deliver(output_of(request, output, is_first=is_first))
            is_first = False

    def _num_left(self, request: GenerationRequest) -> int:
        num_tokens = len(request.prompt_token_ids) + len(request.output_token_ids)
        num_wanted = request.sampling.max_tokens - len(request.output_token_ids)
        return min(num_wanted, self._order.max_model_len - num_tokens)

    def _is_stopped(self, request: GenerationRequest) -> bool:
        """Whether the tokens that it comes with have ended it."""
        sampling, outputs = request.sampling, request.output_token_ids
        stops = {*sampling.stop_token_ids, *(() if sampling.ignore_eos else self._spec.eos_token_ids)}
        return len(outputs) >= max(1, sampling.min_tokens) and outputs[-1] in stops

    def _priority(self, request: GenerationRequest) -> int:
        """The lowest goes first, and 0 where vLLM goes by arrival."""
        if self._queue_policy is QueuePolicy.PRIORITY:
            return request.priority
        if self._queue_policy is QueuePolicy.LEAST_SLACK:
            return round(1e3 * (time.monotonic() + min(request.slack_s, UNBOUND_WAIT_S)))
        return 0

    def _deliver(self, output: SequenceOutput) -> None:
        if output.request_id not in self._books.live:
            return
        if output.finish_reason is None:
            self._books.note_tokens(output.request_id, len(output.token_ids))
        else:
            self._books.end(output.request_id)
        self._outputs.append(output)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        outputs, self._outputs = self._outputs, []
        self._listener.on_step(outputs, self._stats())

    def _stats(self) -> StepStats:
        return self._books.stats(num_cached_blocks=self._names.num_blocks, adapters=self._adapters.keys)

    def _crash(self, error: Exception) -> None:
        if not self._has_crashed:
            self._has_crashed = True
            log.error("vLLM's engine has died: %s", error)
            self._listener.on_crash()
