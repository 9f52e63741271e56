"""The pipeline whose slowest stage is as fast as it can be (dissertation section 4.4.1). Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSlices:
    """Attributes:
    layers_per_stage: the first stage first; one at least in each.
    stage_latency_s: with handing over to the next stage.
    """

    layers_per_stage: tuple[int, ...]
    stage_latency_s: tuple[float, ...]

    @property
    def slowest_s(self) -> float:
        return max(self.stage_latency_s)


class StageSlicer:
    """Slices one sequence of layers into any number of stages up to `max_stages`.

    F(s, k) = min over i of max(F(s - 1, i - 1), latency(i, k)), where latency(i, k) is the sum of the layers' latencies
    and of handing over what layer k gives. O(max_stages * K^2) for K layers, as operations on arrays.
    """

    def __init__(
        self, latency_s: Sequence[float], *, max_stages: int, handover_s: Sequence[float] | None = None
    ) -> None:
        """
        Args:
            latency_s: of each layer.
            handover_s: to the next stage after each layer; nothing where it is None. That of the last is not used.
        """
        if not latency_s or not 1 <= max_stages <= len(latency_s):
            raise InvalidArgumentError(
                f"{len(latency_s)} layers cannot be sliced into {max_stages} stages.",
                hint="A stage has at least one layer.",
                field="max_stages",
            )
        self._until_s: NDArray[np.float64] = np.concatenate(([0.0], np.cumsum(latency_s)))
        self._handover_s = np.zeros(len(latency_s)) if handover_s is None else np.array(handover_s, dtype=np.float64)
        self._handover_s[-1] = 0.0
        self._starts = self._solve(max_stages)

    def slices(self, num_stages: int) -> StageSlices:
        """The best with exactly so many stages."""
        bounds = [len(self._handover_s)]
        for stage in range(num_stages, 0, -1):
            bounds.append(int(self._starts[stage - 1][bounds[-1]]))
        bounds.reverse()
        return StageSlices(
            layers_per_stage=tuple(np.diff(bounds).tolist()),
            stage_latency_s=tuple(float(self._latency_s(start, stop)) for start, stop in pairwise(bounds)),
        )

    def _solve(self, max_stages: int) -> list[NDArray[np.int64]]:
        """Returns for each number of stages, and each number of layers in them, where the last stage begins."""
        num_layers = len(self._handover_s)
        stops = np.arange(num_layers + 1)
        slowest = np.concatenate(([np.inf], self._until_s[1:] + self._handover_s))
        starts = [np.zeros(num_layers + 1, dtype=np.int64)]
        for stage in range(1, max_stages):
            best, start = np.full(num_layers + 1, np.inf), np.zeros(num_layers + 1, dtype=np.int64)
            for stop in stops[stage + 1 :]:
                candidates = np.maximum(slowest[stage:stop], self._latency_s(stops[stage:stop], stop))
                start[stop] = stage + int(np.argmin(candidates))
                best[stop] = candidates[start[stop] - stage]
            slowest = best
            starts.append(start)
        return starts

    def _latency_s(self, start: NDArray[np.int64] | int, stop: int) -> NDArray[np.float64]:
        """Returns the latency of the layers [start, stop) as one stage."""
        return np.asarray(self._until_s[stop] - self._until_s[start] + self._handover_s[stop - 1])
