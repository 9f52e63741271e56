"""A model that vLLM computes, behind the seam that a worker knows engines by."""

import asyncio
import shutil
import time
from pathlib import Path

from vllm.exceptions import VLLMClientError
from vllm.inputs import TokensPrompt
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError
from vllm.v1.metrics.stats import SchedulerStats

from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError
from headway.core.line import UNBOUND_WAIT_S, QueuePolicy
from headway.core.load_order import LoadOrder
from headway.core.model import ModelSpec
from headway.core.request import GenerationRequest
from headway.engine.stats import StepStats
from headway.worker.engine_totals import Step
from headway.worker.serving_engine import EngineFacts
from headway.worker.streamed_engine import EngineLostError, StreamedEngine
from headway.worker.vllm.adapters import Adapters
from headway.worker.vllm.block_feed import BlockFeed
from headway.worker.vllm.block_names import BlockNames
from headway.worker.vllm.sampling import output_of, sampling_of

_WATCH_EVERY_S = 0.5


class VllmEngine(StreamedEngine):
    """Implements `ServingEngine`. vLLM's scheduler runs in a process of its own."""

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
        facts = EngineFacts(kind=EngineKind.VLLM, version=version, weight_bytes=weight_bytes)
        super().__init__(order, spec, facts=facts)
        self._llm = llm
        self._feed = feed
        self._directory = directory
        self._queue_policy = queue_policy
        self._names = BlockNames(self.events, block_size=order.block_size)
        self._adapters = Adapters(llm)
        self._last_step_s = 0.0

    async def stop(self) -> None:
        self._watch.cancel()
        self.cancel(list(self._totals.live))
        await self._feed.stop()
        await asyncio.to_thread(self._llm.shutdown)
        shutil.rmtree(self._directory, ignore_errors=True)

    def note_iteration(self, stats: SchedulerStats) -> None:
        """vLLM's scheduler has done a step; called on the event loop, before its outputs are handed out."""
        now_s = time.perf_counter()
        details, prefix = stats.iteration_details, stats.prefix_cache_stats
        self._totals.note_step(
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
        self._note_sign()
        self._flush_soon()

    def _begin(self) -> None:
        self._feed.start(self._names)
        self._watch = self._loop.create_task(self._watch_engine(), name="vllm-watch")

    def _wake_up(self) -> None:
        self._last_step_s = time.perf_counter()

    async def _watch_engine(self) -> None:
        """Also an engine process that dies while nobody asks it anything is noticed."""
        while not self._llm.errored:  # noqa: ASYNC110 - vLLM tells nobody
            await asyncio.sleep(_WATCH_EVERY_S)
        self._crash(EngineDeadError())

    async def _generate(self, request: GenerationRequest, *, num_left: int) -> None:
        prompt = TokensPrompt(prompt_token_ids=[*request.prompt_token_ids, *request.output_token_ids])
        if request.cache_salt:
            prompt["cache_salt"] = request.cache_salt
        sampling = sampling_of(request, max_tokens=num_left, eos_token_ids=self._spec.eos_token_ids)
        try:
            lora = await self._adapters.use(request.adapter)
            is_first = True
            with self._computing():
                async for output in self._llm.generate(
                    prompt, sampling, request.request_id, lora_request=lora, priority=self._priority(request)
                ):
                    self._deliver(output_of(request, output, is_first=is_first))
                    is_first = False
        except VLLMClientError as error:
            raise InvalidArgumentError(f"vLLM refuses the request: {error}") from error
        except (EngineDeadError, EngineGenerateError) as error:
            raise EngineLostError(error) from error

    def _priority(self, request: GenerationRequest) -> int:
        """The lowest goes first, and 0 where vLLM goes by arrival."""
        if self._queue_policy is QueuePolicy.PRIORITY:
            return request.priority
        if self._queue_policy is QueuePolicy.LEAST_SLACK:
            return round(1e3 * (time.monotonic() + min(request.slack_s, UNBOUND_WAIT_S)))
        return 0

    def _stats(self) -> StepStats:
        return self._totals.stats(num_cached_blocks=self._names.num_blocks, adapters=self._adapters.keys)
