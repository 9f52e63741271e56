"""Requests as they arrived, whatever became of them."""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, field

from headway.core.slo import Slo

REPLAY_COLUMNS = ("at_s", "model", "slo_ms", "prompt_tokens", "output_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request of recorded traffic.

    Attributes:
        at_s: when it arrived, in seconds since 1970.
        max_output_tokens: the most output tokens of each sequence; 0 where nothing is generated.
        slo: the request's objectives, or its model's default.
        num_output_tokens: the output tokens that it got; None where it was refused or has not ended.
    """

    at_s: float
    model: str
    num_prompt_tokens: int
    max_output_tokens: int
    slo: Slo = field(default_factory=Slo)
    num_output_tokens: int | None = None

    @property
    def answer_slo_s(self) -> float | None:
        """The objective of its whole answer; None where it has none."""
        bounds_s = [] if self.slo.e2e_s is None else [self.slo.e2e_s]
        if self.slo.ttft_s is not None and self.max_output_tokens == 0:
            bounds_s.append(self.slo.ttft_s)
        elif self.slo.ttft_s is not None and self.slo.tpot_s is not None:
            num_tokens = self.max_output_tokens if self.num_output_tokens is None else self.num_output_tokens
            bounds_s.append(self.slo.ttft_s + self.slo.tpot_s * max(0, num_tokens - 1))
        return min(bounds_s, default=None)


def write_replay(arrivals: Iterable[Arrival], *, header: bool = True) -> str:
    """CSV as `--workload replay:FILE` reads it; the token counts are for people and other tools."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(REPLAY_COLUMNS)
    for each in arrivals:
        slo_s, num_tokens = each.answer_slo_s, each.num_output_tokens
        writer.writerow(
            (
                f"{each.at_s:.6f}",
                each.model,
                "" if slo_s is None else f"{slo_s * 1e3:.6g}",
                each.num_prompt_tokens,
                "" if num_tokens is None else num_tokens,
            )
        )
    return text.getvalue()
