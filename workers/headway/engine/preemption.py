"""Preempts a group of sequences: its blocks are dropped and computed again later, or moved to the host and back.

Which is cheaper depends on the machine, the model and the block size (dissertation 5.4.5 and its ablation), so both
are measured while the engine runs.
"""

from dataclasses import dataclass

from headway.engine.config import PreemptionMode

_WEIGHT_OF_PAST = 0.95


@dataclass(slots=True)
class UnitCost:
    """Seconds per unit of work, over measurements that are forgotten bit by bit; large ones weigh more."""

    _num_units: float = 0.0
    _duration_s: float = 0.0

    def observe(self, num_units: int, *, duration_s: float) -> None:
        self._num_units = self._num_units * _WEIGHT_OF_PAST + num_units
        self._duration_s = self._duration_s * _WEIGHT_OF_PAST + duration_s

    @property
    def seconds(self) -> float:
        """Zero until something was measured, so that what is unknown gets tried."""
        return self._duration_s / self._num_units if self._num_units else 0.0


class PreemptionPolicy:
    """Compares recomputation with swapping, group by group, unless one of them is forced."""

    def __init__(self, mode: PreemptionMode) -> None:
        self._mode = mode
        self._token_cost = UnitCost()
        self._copy_cost = UnitCost()

    def prefers_swap(self, *, num_tokens: int, num_blocks: int) -> bool:
        """Whether a group had better be swapped.

        Args:
            num_tokens: that it would compute again, every sequence for itself, without what the cache gives back.
            num_blocks: that it would copy out and back in, shared ones once.
        """
        if self._mode != "auto":
            return self._mode == "swap"
        return 2 * num_blocks * self._copy_cost.seconds < num_tokens * self._token_cost.seconds

    def observe_step(
        self, *, num_prefill_tokens: int, num_tokens: int, num_copies: int, duration_s: float, copy_s: float
    ) -> None:
        """Learns from a step.

        A step tells the price of prefill only where prefill makes up most of it: a decode's token costs more, since it
        reads all weights for itself and its context.

        Args:
            num_prefill_tokens, num_tokens: computed; `num_tokens` counts decodes too.
            num_copies: blocks copied to the host and from it.
            duration_s: of the whole step, the copies among it.
            copy_s: of the copies between the tiers, as the runner timed them.
        """
        if num_copies:
            self._copy_cost.observe(num_copies, duration_s=copy_s)
        if 2 * num_prefill_tokens > num_tokens:
            self._token_cost.observe(num_tokens, duration_s=duration_s - copy_s)
