"""Measures how live steps differ from the plan's latency model. Pure.

A profile times the network by itself. In service steps share the machine with whatever carries their tokens away, and a
device may be slower than the one that was profiled, or busy with something else. What a group's steps have taken tells
by how much, and the prediction of the next ones is corrected by it. What was seen counts less the longer ago it was, by
the clock: a group that was slow once, and got nothing to do since, is believed to be as the plan says again.
"""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.latency import LatencyModel
from headway.core.step_work import StepWork

_HALF_LIFE_S = 60.0
"""By the clock; after it an observation counts half."""
_ESTIMATE_HALF_LIFE_S = 15.0
"""The same where an estimate is corrected: nothing but live steps tells how fast they are."""
_LATEST_HALF_LIFE_S = 0.3
"""The same of the latest steps, which are believed first where an estimate is corrected."""
_FADING_HALF_LIFE_S = 2.0
"""In which they are believed half as much, while none come."""
_TRUST_S = 0.1
"""The profile counts like so much time of each part in which nothing differed."""
_ESTIMATE_TRUST_S = 0.001
"""The same of an estimate: the first steps say more than the catalogue does."""
_MAX_RATIO = 10.0
"""Of live time to what is expected by now; what takes longer was a hold-up, and says nothing of the next steps. An
estimate may be wrong by more than that: steps that always take longer are believed one after the other."""
_LEAST_CHANGE = 0.01
_FRESH_S = 1.0
"""What was seen less long ago counts in full: a group that computes reports several times a second."""
_STALE_S = 0.25
"""After which the latest steps of an estimate may not tell any more how fast the group is: a few reports."""
_PROOF = 0.5


class StepDrift:
    """What live steps take beyond the plan, as shares of the model's three parts: what each step takes, its decodes,
    and its prefill. `now_s` is the clock's, and must not fall.

    Where the plan is an estimate, the latest steps are believed first, and for as long as they are fresh; then what is
    usual is believed again, and with time the plan.

    Attributes:
        fitted: the plan's model, corrected by what was usual until the latest step.
        observed_s: what the live steps took that it is corrected by.
    """

    def __init__(self, planned: LatencyModel) -> None:
        self.planned = planned
        self.fitted = planned
        self.observed_s = 0.0
        self._seen = StepWork()
        self._observed_at_s = 0.0
        self._is_estimate = planned.origin == "estimated"
        self._usual = _Fit(
            _ESTIMATE_HALF_LIFE_S if self._is_estimate else _HALF_LIFE_S,
            _ESTIMATE_TRUST_S if self._is_estimate else _TRUST_S,
        )
        self._latest = _Fit(_LATEST_HALF_LIFE_S, _ESTIMATE_TRUST_S)

    def latency(self, *, now_s: float) -> LatencyModel:
        """What steps are believed to take now."""
        idle_s = now_s - self._observed_at_s
        if not self._is_estimate and idle_s < _FRESH_S:
            return self.fitted
        usual = [self._usual.believed(idle_s) * share for share in self._usual.shares]
        if not self._is_estimate:
            return self._corrected(usual)
        fresh = _kept(idle_s, _FADING_HALF_LIFE_S)
        return self._corrected([u + fresh * (f - u) for u, f in zip(usual, self._latest.shares, strict=True)])

    def usual(self, *, now_s: float) -> LatencyModel | None:
        """What steps are believed to take but for the latest; None while those are fresh."""
        idle_s = now_s - self._observed_at_s
        if idle_s < _STALE_S:
            return None
        return self._corrected([self._usual.believed(idle_s) * share for share in self._usual.shares])

    def cautious(self, *, now_s: float) -> LatencyModel:
        """The same with the error that an estimate states for itself, which shrinks as live steps are seen: what is
        promised before anything was measured rests on the catalogue alone."""
        latency = self.latency(now_s=now_s)
        if not self._is_estimate:
            return latency
        return latency.part(1 + self.planned.relative_error * _TRUST_S / (_TRUST_S + self.observed_s))

    def is_proven(self, *, now_s: float) -> bool:
        """Whether the model was measured, or live steps have been seen that count for more than the estimate still."""
        return not self._is_estimate or self._usual.believed(now_s - self._observed_at_s) >= _PROOF

    def observe(self, work: StepWork, *, now_s: float) -> None:
        """Takes in what a group has done since its model was loaded; no change where that is no more than before."""
        done = work - self._seen if work.num_steps >= self._seen.num_steps else work  # else it was loaded anew
        self._seen = work
        parts_s = _parts_s(self.planned, done)
        if done.num_steps == 0 or sum(parts_s) <= 0:
            return
        duration_s = min(done.duration_s, _MAX_RATIO * sum(_parts_s(self.latency(now_s=now_s), done)))
        self.observed_s += duration_s
        idle_s, self._observed_at_s = now_s - self._observed_at_s, now_s
        for fit in (self._usual, self._latest) if self._is_estimate else (self._usual,):
            fit.observe(parts_s, duration_s=duration_s, idle_s=idle_s)
        self.fitted = self._corrected(self._usual.shares)

    def _corrected(self, shares: Sequence[float]) -> LatencyModel:
        """The plan's model with what was learned."""
        base, decode, prefill = (1 + share if abs(share) >= _LEAST_CHANGE else 1.0 for share in shares)
        planned = self.planned
        return replace(
            planned,
            base_s=base * planned.base_s,
            per_prefill_token_s=prefill * planned.per_prefill_token_s,
            per_prefill_pair_s=prefill * planned.per_prefill_pair_s,
            per_decode_s=decode * planned.per_decode_s,
            per_context_token_s=decode * planned.per_context_token_s,
        )


class _Fit:
    """Least squares with forgetting. The shares begin at 0, and fade to it while no steps come.

    Args:
        half_life_s: by the clock; after it an observation counts half.
        trust_s: the plan counts like so much time of each part in which nothing differed.
    """

    def __init__(self, half_life_s: float, trust_s: float) -> None:
        self.shares = [0.0, 0.0, 0.0]
        self._half_life_s, self._trust_s = half_life_s, trust_s
        self._evidence_s = 0.0  # what the steps seen were planned to take, less of those long ago
        self._moments = [[0.0, 0.0, 0.0] for _ in self.shares]
        self._products = [0.0, 0.0, 0.0]

    def believed(self, idle_s: float) -> float:
        """How much of the shares holds yet: the steps seen weigh less than they did, and the plan as much."""
        if not self._evidence_s:
            return 0.0
        kept = _kept(idle_s, self._half_life_s)
        return kept * (self._evidence_s + self._trust_s) / (kept * self._evidence_s + self._trust_s)

    def observe(self, parts_s: Sequence[float], *, duration_s: float, idle_s: float) -> None:
        """Steps whose parts were planned to take so long took `duration_s`, so long after those before."""
        planned_s, kept = sum(parts_s), _kept(idle_s, self._half_life_s)
        self._evidence_s = kept * self._evidence_s + planned_s
        for row, (moments, part_s) in enumerate(zip(self._moments, parts_s, strict=True)):
            # The variance of a duration grows with it.
            self._products[row] = kept * self._products[row] + part_s * (duration_s / planned_s - 1)
            for column, other_s in enumerate(parts_s):
                moments[column] = kept * moments[column] + part_s * other_s / planned_s
        self._solve()

    def _solve(self) -> None:
        """One sweep of Gauss-Seidel over the normal equations; it goes on with the next observation."""
        for row, moments in enumerate(self._moments):
            others = sum(
                moment * share
                for column, (moment, share) in enumerate(zip(moments, self.shares, strict=True))
                if column != row
            )
            share = (self._products[row] - others) / (moments[row] + self._trust_s)
            self.shares[row] = max(share, 1 / _MAX_RATIO - 1)


def _kept(idle_s: float, half_life_s: float) -> float:
    """How much an observation counts after so long."""
    return float(0.5 ** (idle_s / half_life_s))


def _parts_s(latency: LatencyModel, work: StepWork) -> tuple[float, float, float]:
    """Returns the seconds that the model predicts for the steps, their decodes and their prefill."""
    return (
        latency.base_s * work.num_steps,
        latency.per_decode_s * work.num_decodes + latency.per_context_token_s * work.num_context_tokens,
        latency.per_prefill_token_s * work.num_prefill_tokens + latency.per_prefill_pair_s * work.num_prefill_pairs,
    )
