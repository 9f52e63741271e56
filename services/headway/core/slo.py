"""Service-level objectives."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Bounds on a request's latency in seconds; None is no bound.

    Attributes:
        ttft_s: time to first token.
        tpot_s: mean time per output token after the first.
        e2e_s: time to the end of the answer. Where that is one pass, it bounds the same as `ttft_s`.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def __bool__(self) -> bool:
        return (self.ttft_s, self.tpot_s, self.e2e_s) != (None, None, None)

    @property
    def wait_s(self) -> float:
        """The longest time in seconds that a client waits without output; for an answer in one pass its bound. Infinite
        for none.
        """
        return min((bound_s for bound_s in (self.ttft_s, self.e2e_s) if bound_s is not None), default=math.inf)

    def over(self, default: "Slo") -> "Slo":
        """Returns these bounds, with those of `default` that are not set here."""
        return Slo(
            ttft_s=default.ttft_s if self.ttft_s is None else self.ttft_s,
            tpot_s=default.tpot_s if self.tpot_s is None else self.tpot_s,
            e2e_s=default.e2e_s if self.e2e_s is None else self.e2e_s,
        )

    def is_met(self, *, ttft_s: float | None, tpot_s: float | None, e2e_s: float | None) -> bool:
        """Whether measured latencies keep the bounds; one that was never reached (None) does not, TPOT aside."""
        for bound_s, measured_s in ((self.ttft_s, ttft_s), (self.e2e_s, e2e_s)):
            if bound_s is not None and (measured_s is None or measured_s > bound_s):
                return False
        return self.tpot_s is None or tpot_s is None or tpot_s <= self.tpot_s
