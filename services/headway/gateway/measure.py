"""Latencies of one prompt's sequences, and the metrics that they go into."""

from collections import Counter

from headway.core.slo import Slo
from headway.observe.metrics import (
    E2E_SECONDS,
    ITL_SECONDS,
    MIGRATION_PAUSE_SECONDS,
    PREFILL_HANDOFFS,
    REQUEST_FAILURE,
    REQUEST_GENERATION_TOKENS,
    REQUEST_PROMPT_TOKENS,
    REQUEST_SUCCESS,
    SLO_ATTAINMENT,
    SLO_REQUESTS,
    STREAMS_MIGRATED,
    STREAMS_RESUMED,
    TENANT_SLO_REQUESTS,
    TPOT_SECONDS,
    TTFT_SECONDS,
)


class Stopwatch:
    """Notes when a request's tokens came, in seconds of one monotonic clock.

    Attributes:
        num_tokens: the tokens of all sequences together.
    """

    __slots__ = ("_first_s", "_last_s", "_last_s_by_index", "_num_sequences", "arrived_s", "num_tokens")

    def __init__(self, arrived_s: float, *, num_sequences: int) -> None:
        self.arrived_s = arrived_s
        self.num_tokens = 0
        self._num_sequences = num_sequences
        self._first_s: float | None = None
        self._last_s = arrived_s
        self._last_s_by_index: dict[int, float] = {}

    def note(self, num_tokens: int, *, index: int = 0, now_s: float) -> float | None:
        """Counts tokens of a sequence in; returns the seconds since its tokens before, None for its first ones."""
        self.num_tokens += num_tokens
        if self._first_s is None:
            self._first_s = now_s
        last_s = self._last_s_by_index.get(index)
        self._last_s = self._last_s_by_index[index] = now_s
        return None if last_s is None else now_s - last_s

    def note_next(self, now_s: float, *, index: int) -> float:
        """Notes one token that is not the sequence's first, as `note` does. Returns the seconds since its previous
        token.
        """
        self.num_tokens += 1
        last_s = self._last_s_by_index
        gap_s = now_s - last_s[index]
        self._last_s = last_s[index] = now_s
        return gap_s

    @property
    def ttft_s(self) -> float | None:
        return None if self._first_s is None else self._first_s - self.arrived_s

    @property
    def tpot_s(self) -> float | None:
        """Mean over the sequences, which run side by side; None with fewer than two tokens each, or all at once."""
        num_gaps = self.num_tokens / self._num_sequences - 1
        if self._first_s is None or num_gaps <= 0 or self._last_s == self._first_s:
            return None
        return (self._last_s - self._first_s) / num_gaps


class ModelMetrics:
    """One model's metrics, bound to its label once: observing is on the path of every token."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._ttft = TTFT_SECONDS.labels(model)
        self._tpot = TPOT_SECONDS.labels(model)
        self._e2e = E2E_SECONDS.labels(model)
        self._num_prompt_tokens = REQUEST_PROMPT_TOKENS.labels(model)
        self._num_generation_tokens = REQUEST_GENERATION_TOKENS.labels(model)
        self._slo_outcomes: Counter[str] = Counter()
        self.observe_gap = ITL_SECONDS.labels(model).observe
        self.observe_handoff = PREFILL_HANDOFFS.labels(model).inc
        self.observe_migration = STREAMS_MIGRATED.labels(model).inc
        self.observe_pause = MIGRATION_PAUSE_SECONDS.labels(model).observe
        self.observe_resumption = STREAMS_RESUMED.labels(model).inc

    def observe_success(
        self, watch: Stopwatch, *, slo: Slo, tenant: str, num_prompt_tokens: int, reason: str, now_s: float
    ) -> None:
        """Records the latencies and token counts of a complete answer."""
        REQUEST_SUCCESS.labels(self._model, reason).inc()
        self._e2e.observe(now_s - watch.arrived_s)
        self._num_prompt_tokens.observe(num_prompt_tokens)
        self._num_generation_tokens.observe(watch.num_tokens)
        ttft_s, tpot_s = watch.ttft_s, watch.tpot_s
        if ttft_s is not None:
            self._ttft.observe(ttft_s)
        if tpot_s is not None:
            self._tpot.observe(tpot_s)
        if slo:
            is_met = slo.is_met(ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=now_s - watch.arrived_s)
            self._count_slo("met" if is_met else "missed", tenant=tenant)

    def observe_departure(self) -> None:
        """A client that left before its answer was complete; it has no say on the SLO."""
        REQUEST_SUCCESS.labels(self._model, "abort").inc()

    def observe_failure(self, code: str, *, slo: Slo, tenant: str, was_refused: bool) -> None:
        REQUEST_FAILURE.labels(self._model, code).inc()
        if slo:
            self._count_slo("rejected" if was_refused else "missed", tenant=tenant)

    def _count_slo(self, outcome: str, *, tenant: str) -> None:
        SLO_REQUESTS.labels(self._model, outcome).inc()
        if tenant:
            TENANT_SLO_REQUESTS.labels(tenant, self._model, outcome).inc()
        self._slo_outcomes[outcome] += 1
        SLO_ATTAINMENT.labels(self._model).set(self._slo_outcomes["met"] / self._slo_outcomes.total())
