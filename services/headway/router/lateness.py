"""How much later than predicted tokens reach the gateway. Pure.

The latency model predicts steps. On top of them come the way from the lease to the worker and back, queues of the
processes between, and what the forecast leaves out of a step. What past requests took beyond it is added to the next.
"""

from dataclasses import dataclass, field

from headway.router.recent_quantile import RecentQuantile

_FIRST_TOKENS, _ANSWERS = 0.98, 0.95
_FIRST_TOKENS_HALF_LIFE_S, _ANSWERS_HALF_LIFE_S = 30.0, 3.0
_NUM_FIRST_TOKENS, _NUM_ANSWERS = 128, 48
"""After so many, nothing is left of those before: who was late in a slow spell lengthens forecasts for as long."""


@dataclass(slots=True)
class Lateness:
    """What a place's latest first tokens took beyond the forecast in seconds, and how many times as long as foretold
    the tokens of its latest answers took."""

    _first: RecentQuantile = field(
        default_factory=lambda: RecentQuantile(_FIRST_TOKENS, _FIRST_TOKENS_HALF_LIFE_S, _NUM_FIRST_TOKENS)
    )
    _excess: RecentQuantile = field(
        default_factory=lambda: RecentQuantile(_ANSWERS, _ANSWERS_HALF_LIFE_S, _NUM_ANSWERS)
    )

    @property
    def max_without_token(self) -> int:
        """How many requests with objectives may be without their first token: one, and two more for each that was seen.

        A burst to a place of which nothing is known comes in waves, as in the slow start of TCP (RFC 5681, section
        3.1): each learns from the one before how late first tokens are there.
        """
        return 1 + 2 * self._first.num_kept

    def observe(self, late_s: float, *, now_s: float) -> None:
        """A first token came so much later than the model predicted, or sooner if it is negative."""
        self._first.observe(late_s, now_s=now_s)

    def observe_answer(self, ratio: float, *, now_s: float) -> None:
        """The tokens after the first took so many times as long as the model predicted."""
        self._excess.observe(ratio - 1, now_s=now_s)

    def margin_s(self, *, now_s: float) -> float:
        """To be added to the forecast of a first token; 0 while nothing was late."""
        return self._first.value(now_s=now_s)

    def ratio(self, *, now_s: float) -> float:
        """That steps are to be multiplied by, so that nearly all answers are in time; 1 while none was late."""
        return 1 + self._excess.value(now_s=now_s)
