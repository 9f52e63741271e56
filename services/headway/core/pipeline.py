"""Predicts when batches come out of a pipeline whose stages take known times. Pure.

A batch enters a stage when it has left the one before and the batch ahead of it has left this one: first come, first
served, and no stage waits for a later one to be free, as in AlpaServe's runtime (dissertation, section 4.5).
"""

import math
from collections.abc import Sequence


class Pipeline:
    """The stages of one group of devices; seconds are those of any one clock.

    Attributes:
        free_s: when the first stage takes another batch.
    """

    def __init__(self, *, num_stages: int) -> None:
        self._free_s = [-math.inf] * num_stages

    @property
    def num_stages(self) -> int:
        return len(self._free_s)

    @property
    def free_s(self) -> float:
        return self._free_s[0]

    def enter(self, ready_s: float, stage_s: Sequence[float]) -> float:
        """Lets a batch in that was ready at `ready_s`; returns when it leaves the last stage.

        Args:
            stage_s: what it takes in each stage.
        """
        self._free_s = self._play(ready_s, stage_s)
        return self._free_s[-1]

    def predict(self, ready_s: float, stage_s: Sequence[float]) -> float:
        """Returns when a batch would leave the last stage if it entered now, in the clock's seconds."""
        return self._play(ready_s, stage_s)[-1]

    def copy(self) -> "Pipeline":
        """One that goes its own way from here on."""
        copy = Pipeline(num_stages=0)
        copy._free_s = list(self._free_s)
        return copy

    def shift(self, by_s: float) -> None:
        """Delays all that is under way by `by_s` seconds; a negative value makes it earlier."""
        self._free_s = [free_s + by_s for free_s in self._free_s]

    def _play(self, ready_s: float, stage_s: Sequence[float]) -> list[float]:
        """Returns when the batch leaves each stage."""
        leaves_s, times_s = ready_s, []
        for free_s, duration_s in zip(self._free_s, stage_s, strict=True):
            leaves_s = max(leaves_s, free_s) + duration_s
            times_s.append(leaves_s)
        return times_s
