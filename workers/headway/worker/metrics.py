"""The engine's metrics of one model, updated once a step."""

from headway.engine.stats import StepStats
from headway.observe import metrics


class StepMetrics:
    """Label children are looked up once, not every step."""

    def __init__(self, model: str) -> None:
        self._running = metrics.NUM_REQUESTS_RUNNING.labels(model)
        self._waiting = metrics.NUM_REQUESTS_WAITING.labels(model)
        self._usage = metrics.KV_CACHE_USAGE.labels(model)
        self._prompt_tokens = metrics.PROMPT_TOKENS.labels(model)
        self._generation_tokens = metrics.GENERATION_TOKENS.labels(model)
        self._preemptions = metrics.NUM_PREEMPTIONS.labels(model)
        self._prefix_queries = metrics.PREFIX_CACHE_QUERIES.labels(model)
        self._prefix_hits = metrics.PREFIX_CACHE_HITS.labels(model)
        self._step_seconds = metrics.STEP_SECONDS.labels(model)
        self._step_tokens = metrics.STEP_TOKENS.labels(model)

    def observe(self, stats: StepStats, *, before: StepStats, num_sampled: int) -> None:
        """Counters advance by what changed since `before`."""
        num_blocks = stats.num_used_blocks + stats.num_cached_blocks + stats.num_free_blocks
        self._running.set(stats.num_running)
        self._waiting.set(stats.num_waiting)
        self._usage.set(stats.num_used_blocks / num_blocks)
        self._prompt_tokens.inc(stats.num_prefill_tokens)
        self._generation_tokens.inc(num_sampled)
        self._preemptions.inc(stats.num_preemptions - before.num_preemptions)
        self._prefix_queries.inc(stats.num_prefix_queries - before.num_prefix_queries)
        self._prefix_hits.inc(stats.num_prefix_hits - before.num_prefix_hits)
        self._step_seconds.observe(stats.duration_s)
        self._step_tokens.observe(stats.num_prefill_tokens + stats.num_decode_tokens)
