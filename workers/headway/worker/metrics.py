"""The metrics of one model, updated once a step; those of its group, once a second."""

import asyncio
from dataclasses import replace

from headway.core.engine_kind import EngineKind
from headway.core.load_order import LoadOrder
from headway.encoder.stats import EncoderStats
from headway.engine.stats import StepStats
from headway.observe import metrics
from headway.runner.parallel.collective_counters import CollectiveCount, CollectiveCounters, CollectiveKey

_TRAFFIC_EVERY_S = 1.0


class StepMetrics:
    """Label children are looked up once, not every step; gauges are read when somebody asks for them.

    Attributes:
        stats: the latest.
    """

    def __init__(self, model: str, *, stats: StepStats, num_host_blocks: int, max_num_batched_tokens: int) -> None:
        self.stats = stats
        metrics.STEP_TOKEN_BUDGET.labels(model).set(max_num_batched_tokens)
        metrics.NUM_REQUESTS_RUNNING.labels(model).set_function(lambda: self.stats.num_running)
        metrics.NUM_REQUESTS_WAITING.labels(model).set_function(lambda: self.stats.num_waiting)
        metrics.NUM_REQUESTS_SWAPPED.labels(model).set_function(lambda: self.stats.num_swapped)
        metrics.KV_CACHE_USAGE.labels(model).set_function(lambda: self.stats.kv_usage)
        metrics.CPU_CACHE_USAGE.labels(model).set_function(
            lambda: self.stats.num_used_host_blocks / max(num_host_blocks, 1)
        )
        metrics.STEP_BUDGET_USAGE.labels(model).set_function(lambda: self.stats.num_tokens / max_num_batched_tokens)
        self._prompt_tokens = metrics.PROMPT_TOKENS.labels(model)
        self._generation_tokens = metrics.GENERATION_TOKENS.labels(model)
        self._recomputes = metrics.NUM_PREEMPTIONS.labels(model, "recompute")
        self._swaps = metrics.NUM_PREEMPTIONS.labels(model, "swap")
        self._draft_tokens = metrics.SPEC_DRAFT_TOKENS.labels(model)
        self._accepted_tokens = metrics.SPEC_ACCEPTED_TOKENS.labels(model)
        self._prefix_queries = metrics.PREFIX_CACHE_QUERIES.labels(model)
        self._prefix_hits = metrics.PREFIX_CACHE_HITS.labels(model)
        self._moved_blocks = metrics.MOVED_BLOCKS.labels(model)
        self._step_seconds = metrics.STEP_SECONDS.labels(model)
        self._step_tokens = metrics.STEP_TOKENS.labels(model)

    def observe(self, stats: StepStats, *, num_sampled: int) -> None:
        """Counters advance by what a step has changed.

        Args:
            num_sampled: tokens that the step gave to requests.
        """
        before, self.stats = self.stats, stats
        num_swaps = stats.num_swaps - before.num_swaps
        increases = (
            (self._prompt_tokens, stats.num_prefill_tokens),
            (self._generation_tokens, num_sampled),
            (self._swaps, num_swaps),
            (self._recomputes, stats.num_preemptions - before.num_preemptions - num_swaps),
            (self._draft_tokens, stats.num_draft_tokens - before.num_draft_tokens),
            (self._accepted_tokens, stats.num_accepted_tokens - before.num_accepted_tokens),
            (self._prefix_queries, stats.num_prefix_queries - before.num_prefix_queries),
            (self._prefix_hits, stats.num_prefix_hits - before.num_prefix_hits),
            (self._moved_blocks, stats.num_moved_blocks - before.num_moved_blocks),
        )
        for counter, increase in increases:
            if increase:  # most steps change two of them
                counter.inc(increase)
        self._step_seconds.observe(stats.duration_s)
        self._step_tokens.observe(stats.num_tokens)


class PhaseMetrics:
    """Metrics of how long a model's requests wait, prefill and decode; see `PhaseListener`."""

    def __init__(self, model: str) -> None:
        self._queue = metrics.REQUEST_QUEUE_SECONDS.labels(model)
        self._prefill = metrics.REQUEST_PREFILL_SECONDS.labels(model)
        self._decode = metrics.REQUEST_DECODE_SECONDS.labels(model)

    def observe_first_token(self, *, queue_s: float, prefill_s: float) -> None:
        self._queue.observe(queue_s)
        self._prefill.observe(prefill_s)

    def observe_end(self, *, decode_s: float) -> None:
        self._decode.observe(decode_s)


class CacheInfo:
    """Tells how a model's KV cache is made, as long as it is loaded."""

    def __init__(self, order: LoadOrder) -> None:
        self._labels = (
            order.model,
            str(order.block_size),
            order.dtype or "auto",
            str(order.enable_prefix_cache),
            str(order.num_blocks),
            str(order.num_host_blocks),
        )
        metrics.CACHE_CONFIG_INFO.labels(*self._labels).set(1)

    def remove(self) -> None:
        metrics.CACHE_CONFIG_INFO.remove(*self._labels)


class EngineInfo:
    """Tells what computes a model, as long as it is loaded."""

    def __init__(self, model: str, *, kind: EngineKind, version: str = "") -> None:
        self._labels = (model, kind, version)
        metrics.ENGINE_INFO.labels(*self._labels).set(1)

    def remove(self) -> None:
        metrics.ENGINE_INFO.remove(*self._labels)


class EncoderMetrics:
    """The same of a model that does not generate."""

    def __init__(self, model: str) -> None:
        self._running = metrics.NUM_REQUESTS_RUNNING.labels(model)
        self._waiting = metrics.NUM_REQUESTS_WAITING.labels(model)
        self._prompt_tokens = metrics.PROMPT_TOKENS.labels(model)
        self._step_seconds = metrics.STEP_SECONDS.labels(model)
        self._step_tokens = metrics.STEP_TOKENS.labels(model)

    def observe(self, stats: EncoderStats) -> None:
        self._running.set(stats.num_running)
        self._waiting.set(stats.num_waiting)
        self._prompt_tokens.inc(stats.num_tokens)
        self._step_seconds.observe(stats.duration_s)
        self._step_tokens.observe(stats.num_tokens)


class CollectiveMetrics:
    """Metrics of what this rank sends to the others of its group; they stay empty for a lone worker. They are updated
    by a timer, so steps do not pay for them.
    """

    def __init__(self, model: str, traffic: CollectiveCounters, *, loop: asyncio.AbstractEventLoop) -> None:
        self._model = model
        self._traffic = traffic
        self._loop = loop
        self._told: dict[CollectiveKey, CollectiveCount] = {}
        self._timer = loop.call_later(_TRAFFIC_EVERY_S, self._tick)

    def update(self) -> None:
        """Counters advance by what has been sent since the last call."""
        for key, count in self._traffic.totals().items():
            now, before = replace(count), self._told.get(key, CollectiveCount())
            labels = (self._model, key.axis, key.operation, key.site)
            metrics.COLLECTIVE_BYTES.labels(*labels).inc(now.num_bytes - before.num_bytes)
            metrics.COLLECTIVE_CALLS.labels(*labels).inc(now.num_calls - before.num_calls)
            metrics.COLLECTIVE_SECONDS.labels(self._model, key.axis).inc(now.seconds - before.seconds)
            self._told[key] = now

    def stop(self) -> None:
        self._timer.cancel()
        self.update()

    def _tick(self) -> None:
        self.update()
        self._timer = self._loop.call_later(_TRAFFIC_EVERY_S, self._tick)


class TransferMetrics:
    """Blocks that go to other workers and come from them, and sequences that move with them."""

    def __init__(self, model: str) -> None:
        self._model = model

    def observe_read(self, num_blocks: int, *, num_bytes: int) -> None:
        self._observe("out", num_blocks, num_bytes)

    def observe_write(self, num_blocks: int, *, num_bytes: int) -> None:
        self._observe("in", num_blocks, num_bytes)

    def observe_move(self, outcome: str, *, num_sequences: int = 1) -> None:
        """`outcome` is 'moved', 'recomputed' where the target has no blocks of them, or 'failed'."""
        metrics.MIGRATIONS.labels(self._model, outcome).inc(num_sequences)

    def observe_prefix(self, outcome: str, *, num_tokens: int = 0) -> None:
        """A prompt of which another worker was to have more: 'fetched', 'late' or 'failed'."""
        metrics.PREFIX_FETCHES.labels(self._model, outcome).inc()
        metrics.PREFIX_FETCHED_TOKENS.labels(self._model).inc(num_tokens)

    def _observe(self, direction: str, num_blocks: int, num_bytes: int) -> None:
        metrics.KV_TRANSFER_BLOCKS.labels(self._model, direction).inc(num_blocks)
        metrics.KV_TRANSFER_BYTES.labels(self._model, direction).inc(num_bytes)
