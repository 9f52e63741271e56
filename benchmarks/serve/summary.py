"""The figures of one run, and of several runs together."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from benchmarks.serve.client import LoadResult
from benchmarks.serve.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, median and 99th percentile; None when nothing was measured."""

    mean: float | None
    p50: float | None
    p99: float | None

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        sample = np.fromiter(values, dtype=np.float64)
        if not sample.size:
            return cls(None, None, None)
        p50, p99 = np.percentile(sample, (50, 99))
        return cls(float(sample.mean()), float(p50), float(p99))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What one run measured. Latencies count complete answers only.

    Attributes:
        output_tokens_per_s, requests_per_s: complete answers over the whole run's time.
        ttft_s: time to first token.
        tpot_s: time per output token after the first, one value a request.
        inter_token_s: time between events that carried text, over all requests.
        normalised_latency_s: time to the last token divided by the output tokens.
        tokens_per_event: 1 when the server sends each token by itself.
        client_cpu_share: cores the load generator itself used.
        max_lag_s: how late the load generator sent its latest request.
    """

    num_requests: int
    num_failures: int
    wall_s: float
    output_tokens_per_s: float
    requests_per_s: float
    ttft_s: Spread
    tpot_s: Spread
    inter_token_s: Spread
    normalised_latency_s: Spread
    tokens_per_event: float | None
    client_cpu_share: float
    max_lag_s: float


def summarise(result: LoadResult) -> Summary:
    """The figures of a run."""
    complete = [outcome for outcome in result.outcomes if not outcome.error]
    num_tokens = sum(outcome.num_tokens for outcome in complete)
    num_events = sum(len(outcome.token_times_s) for outcome in complete)
    return Summary(
        num_requests=len(result.outcomes),
        num_failures=len(result.outcomes) - len(complete),
        wall_s=result.wall_s,
        output_tokens_per_s=num_tokens / result.wall_s,
        requests_per_s=len(complete) / result.wall_s,
        ttft_s=Spread.of(outcome.ttft_s for outcome in complete),
        tpot_s=Spread.of(outcome.tpot_s for outcome in complete if outcome.tpot_s is not None),
        inter_token_s=Spread.of(gap_s for outcome in complete for gap_s in outcome.gaps_s),
        normalised_latency_s=Spread.of(outcome.normalised_latency_s for outcome in complete),
        tokens_per_event=num_tokens / num_events if num_events else None,
        client_cpu_share=result.client_cpu_share,
        max_lag_s=max((outcome.lag_s for outcome in result.outcomes), default=0.0),
    )


def median_figures(summaries: Sequence[Summary]) -> dict[str, float | None]:
    """Each figure's median over repeated runs, by its flat name (`ttft_s.p50`)."""
    rows = [flat_figures(summary) for summary in summaries]
    return {name: median(row[name] for row in rows) for name in rows[0]}


def flat_figures(summary: Summary) -> dict[str, float | None]:
    """Every figure by name; a spread's parts follow a dot."""
    flat: dict[str, float | None] = {}
    for field in fields(summary):
        value = getattr(summary, field.name)
        if isinstance(value, Spread):
            flat |= {f"{field.name}.{part}": number for part, number in asdict(value).items()}
        else:
            flat[field.name] = value
    return flat


def median(values: Iterable[float | None]) -> float | None:
    sample = [value for value in values if value is not None]
    return float(np.median(sample)) if sample else None


def failures_by_cause(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How often each error was met, the most frequent first."""
    return dict(Counter(outcome.error for outcome in outcomes if outcome.error).most_common())


def request_record(outcome: Outcome) -> dict[str, Any]:
    """One request as a row of the result file."""
    row: dict[str, Any] = {
        "arrival_s": round(outcome.request.arrival_s, 4),
        "num_prompt_tokens": len(outcome.request.prompt_token_ids),
        "num_output_tokens": outcome.num_tokens,
    }
    if outcome.error:
        return row | {"error": outcome.error}
    return row | {"ttft_s": round(outcome.ttft_s, 5), "latency_s": round(outcome.latency_s, 5)}
