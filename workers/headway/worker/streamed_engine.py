"""An engine of others: it schedules by itself, and gives each sequence a stream of its own."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from headway.core.engine_kind import Feature, lacks
from headway.core.errors import AlreadyExistsError, HeadwayError, InvalidArgumentError, UnavailableError
from headway.core.kv import KvUsage
from headway.core.load_order import LoadOrder
from headway.core.model import ModelSpec
from headway.core.request import FinishReason, GenerationRequest, SequenceOutput
from headway.engine.events import BlockEventLog
from headway.engine.limits import check_tokens
from headway.engine.sequence import Sequence as EngineSequence
from headway.engine.stats import StepStats
from headway.worker.engine_thread import StepListener
from headway.worker.engine_totals import EngineTotals
from headway.worker.serving_engine import EngineFacts

log = logging.getLogger(__name__)

Refuse = Callable[[Sequence[str], HeadwayError], None]


class EngineLostError(Exception):
    """The engine computes nothing any more."""


class StreamedEngine(ABC):
    """The part of `ServingEngine` that such engines have in common: one task for each sequence, and books of what
    lives. Outputs of one wake-up go to the listener together."""

    def __init__(self, order: LoadOrder, spec: ModelSpec, *, facts: EngineFacts) -> None:
        self.facts = facts
        self.events = BlockEventLog()
        self._order = order
        self._spec = spec
        self._totals = EngineTotals(order.num_blocks)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._outputs: dict[str, SequenceOutput] = {}  # of the next message, by request
        self._is_flushing = False
        self._has_crashed = False
        self._num_computing = 0
        self._num_signs = 0

    def start(self, listener: StepListener) -> StepStats:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._begin()
        return self._stats()

    def submit(self, requests: Sequence[GenerationRequest], *, refuse: Refuse) -> None:
        try:
            for request in requests:
                self._check(request)
        except HeadwayError as error:
            refuse([request.request_id for request in requests], error)
            return
        if not self._totals.live:
            self._wake_up()
        for request in requests:
            self._totals.begin(request)
            self._tasks[request.request_id] = self._loop.create_task(self._run(request, refuse))

    def cancel(self, request_ids: Sequence[str], *, on_ended: Callable[[Sequence[str]], None] | None = None) -> None:
        ended = [request_id for request_id in request_ids if self._totals.end(request_id)]
        for request_id in ended:
            self._tasks.pop(request_id).cancel()  # the engine aborts what nobody listens to
        if on_ended is not None:
            self._loop.call_soon(on_ended, ended)
        if ended and not self._totals.live:
            self._loop.call_soon(lambda: self._listener.on_idle(self._stats()))

    @property
    def running_step(self) -> int:
        """The number of the step that is being computed, as far as the engine tells of its steps; 0 while it has
        nothing to compute."""
        return self._num_signs + 1 if self._num_computing else 0

    def stack(self) -> str:
        """Where it is, as far as that can be told of another process."""
        return f"{self.facts.kind}, which had given {self._num_signs} signs of life before"

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
        raise lacks(self.facts.kind, Feature.MEASURED_STEPS, model=self._order.model)

    @abstractmethod
    def _begin(self) -> None:
        """Listens to the engine from now on."""

    @abstractmethod
    def _wake_up(self) -> None:
        """The first of its sequences comes."""

    @abstractmethod
    async def _generate(self, request: GenerationRequest, *, num_left: int) -> None:
        """Delivers the outputs of a sequence, of which so many tokens may still come. One that has no end by then was
        given up by the engine.

        Raises:
            HeadwayError: the engine does not take it.
            EngineLostError: it is gone.
        """

    @abstractmethod
    def _stats(self) -> StepStats:
        """As they are now."""

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """The engine has a sequence to compute meanwhile."""
        self._num_computing += 1
        try:
            yield
        finally:
            self._num_computing -= 1

    def _note_sign(self) -> None:
        """The engine has done something, whoever asked for it."""
        self._num_signs += 1

    def _check(self, request: GenerationRequest) -> None:
        """Refuses what is unfit: engines die of token ids that are not in the vocabulary."""
        if request.request_id in self._totals.live:
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

    async def _run(self, request: GenerationRequest, refuse: Refuse) -> None:
        num_left = self._num_left(request)
        try:
            if num_left <= 0 or self._is_stopped(request):
                reason = FinishReason.LENGTH if num_left <= 0 else FinishReason.STOP
                stop = request.output_token_ids[-1] if reason is FinishReason.STOP else None
                self._deliver(SequenceOutput(request.request_id, finish_reason=reason, stop_token_id=stop))
            else:
                await self._generate(request, num_left=num_left)
                if request.request_id in self._totals.live:
                    raise UnavailableError(f"{self.facts.kind} has given the request up.", hint="Try again.")
        except HeadwayError as error:
            if self._totals.end(request.request_id):
                refuse([request.request_id], error)
        except EngineLostError as error:
            self._crash(error)
        finally:
            if self._tasks.get(request.request_id) is asyncio.current_task():
                del self._tasks[request.request_id]

    def _num_left(self, request: GenerationRequest) -> int:
        num_tokens = len(request.prompt_token_ids) + len(request.output_token_ids)
        num_wanted = request.sampling.max_tokens - len(request.output_token_ids)
        return min(num_wanted, self._order.max_model_len - num_tokens)

    def _is_stopped(self, request: GenerationRequest) -> bool:
        """Whether the tokens that it comes with have ended it."""
        sampling, outputs = request.sampling, request.output_token_ids
        stops = {*sampling.stop_token_ids, *(() if sampling.ignore_eos else self._spec.eos_token_ids)}
        return len(outputs) >= max(1, sampling.min_tokens) and outputs[-1] in stops

    def _deliver(self, output: SequenceOutput) -> None:
        if output.request_id not in self._totals.live:
            return
        if output.finish_reason is None:
            self._totals.note_tokens(output.request_id, len(output.token_ids))
        else:
            self._totals.end(output.request_id)
        if output.request_id in self._outputs:
            self._flush()  # a message has one output of a sequence
        self._outputs[output.request_id] = output
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._is_flushing = False
        self._flush()

    def _flush(self) -> None:
        outputs, self._outputs = self._outputs, {}
        self._listener.on_step(list(outputs.values()), self._stats())

    def _crash(self, error: Exception) -> None:
        if not self._has_crashed:
            self._has_crashed = True
            log.error("%s has died: %s", self.facts.kind, error)
            self._listener.on_crash()
