"""What the second worker gives, as rows of the tables in docs/benchmarks/parallel.md."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.parallel.burst import Burst, Outcome
from benchmarks.parallel.long_decode import LongDecode, Timing
from benchmarks.parallel.thesis import NUM_RANKS, derived_cp, derived_tp, sent_elements, text_cp, text_tp
from benchmarks.serve.report import MISSING
from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig
from headway.core.units import format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstRow:
    """One burst on one worker and on a group, medians over the repeats.

    Attributes:
        waiting_share: of the time, what the leader spent in collectives and for other stages.
        equal_sequences: share of the greedy sequences that are the same, token for token.
        min_speedup: the target, if there is one.
    """

    flags: str
    burst: str
    alone_tokens_per_s: float
    group_tokens_per_s: float
    prefill_ratio: float
    decode_ratio: float
    waiting_share: float
    equal_sequences: float
    min_speedup: float | None

    @classmethod
    def of(
        cls,
        parallel: ParallelConfig,
        burst: Burst,
        alone: Sequence[Outcome],
        group: Sequence[Outcome],
        *,
        min_speedup: float | None,
    ) -> "BurstRow":
        num_equal = sum(a == b for a, b in zip(alone[0].token_ids, group[0].token_ids, strict=True))
        return cls(
            flags=parallel.flags,
            burst=str(burst),
            alone_tokens_per_s=median(outcome.tokens_per_s(burst) for outcome in alone),
            group_tokens_per_s=median(outcome.tokens_per_s(burst) for outcome in group),
            prefill_ratio=median(each.prefill_s for each in alone) / median(each.prefill_s for each in group),
            decode_ratio=median(each.decode_s for each in alone) / median(each.decode_s for each in group),
            waiting_share=median(each.waiting_s / (each.prefill_s + each.decode_s) for each in group),
            equal_sequences=num_equal / burst.num_requests,
            min_speedup=min_speedup,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRow:
    """One step of long sequences on one worker and on a group, medians over the repeats.

    Attributes:
        attention_share: of the one worker's time.
        waiting_share: of the group's, what the leader spent in collectives.
    """

    flags: str
    decode: str
    attention_share: float
    alone_s: float
    group_s: float
    waiting_share: float
    min_speedup: float

    @classmethod
    def of(
        cls,
        parallel: ParallelConfig,
        decode: LongDecode,
        alone: Sequence[Timing],
        group: Sequence[Timing],
        *,
        min_speedup: float,
    ) -> "DecodeRow":
        return cls(
            flags=parallel.flags,
            decode=str(decode),
            attention_share=median(timing.attention_share for timing in alone),
            alone_s=median(timing.step_s for timing in alone),
            group_s=median(timing.step_s for timing in group),
            waiting_share=median(timing.waiting_share for timing in group),
            min_speedup=min_speedup,
        )


def burst_table(rows: Sequence[BurstRow]) -> str:
    headings = (
        *("layout", "requests x prompt + output", "one worker", "two", "ratio", "target"),
        *("prefill", "decode", "leader waits", "same tokens"),
    )
    return _markdown(
        headings,
        [
            (
                f"`{row.flags}`",
                row.burst,
                f"{row.alone_tokens_per_s:.0f} tokens/s",
                f"{row.group_tokens_per_s:.0f} tokens/s",
                f"{row.group_tokens_per_s / row.alone_tokens_per_s:.2f}",
                MISSING if row.min_speedup is None else f"{row.min_speedup}",
                f"{row.prefill_ratio:.2f}",
                f"{row.decode_ratio:.2f}",
                f"{row.waiting_share:.0%}",
                f"{row.equal_sequences:.0%}",
            )
            for row in rows
        ],
        num_texts=2,
    )


def decode_table(rows: Sequence[DecodeRow]) -> str:
    headings = ("layout", "sequences x context", "attention", "one worker", "two", "ratio", "target", "leader waits")
    return _markdown(
        headings,
        [
            (
                f"`{row.flags}`",
                row.decode,
                f"{row.attention_share:.0%}",
                format_duration(row.alone_s),
                format_duration(row.group_s),
                f"{row.alone_s / row.group_s:.2f}",
                f"{row.min_speedup}",
                f"{row.waiting_share:.0%}",
            )
            for row in rows
        ],
        num_texts=2,
    )


def volume_table(spec: ModelSpec) -> str:
    """Elements that leave a rank per layer for each sequence that decodes, in units of the hidden size."""
    hidden_size, num_heads = spec.hidden_size, spec.num_heads
    headings = ("N", "tp, text", "tp, derived", "tp, sent", "cp, text", "cp, derived", "cp, sent", "cp, sent, split")
    rows = []
    for num_ranks in NUM_RANKS:
        layouts = [ParallelConfig(tp=num_ranks), ParallelConfig(cp=num_ranks)]
        layouts.append(ParallelConfig(cp=num_ranks, cp_ffn="tensor"))
        tp, cp, split = (sent_elements(spec, parallel, batch=1) for parallel in layouts)
        elements = (
            text_tp(batch=1, hidden_size=hidden_size, num_ranks=num_ranks),
            derived_tp(batch=1, hidden_size=hidden_size, num_ranks=num_ranks),
            tp,
            text_cp(batch=1, hidden_size=hidden_size, num_heads=num_heads, num_ranks=num_ranks),
            derived_cp(batch=1, hidden_size=hidden_size, num_heads=num_heads, num_ranks=num_ranks),
            cp,
            split,
        )
        rows.append((str(num_ranks), *(f"{number / hidden_size:.2f}" for number in elements)))
    return _markdown(headings, rows, num_texts=1)


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]], *, num_texts: int) -> str:
    """A table whose columns, but for the first ones, are numbers."""
    marks = ["---" if column < num_texts else "---:" for column in range(len(headings))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (headings, marks, *rows))
