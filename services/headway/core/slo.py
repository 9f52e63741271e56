"""Service-level objectives."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Bounds on a request's latency in seconds; None is no bound.

    Attributes:
        ttft_s: time to first token.
        tpot_s: mean time per output token after the first.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None

    def __bool__(self) -> bool:
        return self.ttft_s is not None or self.tpot_s is not None

    def is_met(self, *, ttft_s: float | None, tpot_s: float | None) -> bool:
        """Whether measured latencies keep the bounds; a latency that was never reached (None TTFT) does not."""
        if self.ttft_s is not None and (ttft_s is None or ttft_s > self.ttft_s):
            return False
        return self.tpot_s is None or tpot_s is None or tpot_s <= self.tpot_s
