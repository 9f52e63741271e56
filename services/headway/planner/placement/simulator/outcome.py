"""The outcome of a simulation."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulationOutcome:
    """The outcome of a simulation; all requests count, from the first on.

    Attributes:
        attainment: share of requests that met their SLO; refused ones did not.
        attainment_by_model: of the models that had requests.
        arrival_s: float64 [num_requests].
        finish_s: float64 [num_requests], infinite where a request was refused.
        group: int32 [num_requests], counting in the placement; -1 where refused.
        utilisation: of each group, the share of its devices' time that was spent on requests, from the first arrival
            to the last finish.
    """

    attainment: float
    attainment_by_model: Mapping[str, float]
    arrival_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    group: NDArray[np.int32]
    utilisation: tuple[float, ...]

    @property
    def latency_s(self) -> NDArray[np.float64]:
        """The latencies of the requests that were served, in their order."""
        served = self.group >= 0
        latency: NDArray[np.float64] = self.finish_s[served] - self.arrival_s[served]
        return latency

    @property
    def num_refused(self) -> int:
        return int(np.count_nonzero(self.group < 0))

    @property
    def mean_latency_s(self) -> float:
        """The mean latency of the requests that were served; not a number where none was."""
        latency_s = self.latency_s
        return float(latency_s.mean()) if len(latency_s) else float("nan")

    def latency_percentile_s(self, percent: float) -> float:
        """Returns a percentile of the latencies of the requests that were served; not a number where none was."""
        latency_s = self.latency_s
        return float(np.percentile(latency_s, percent)) if len(latency_s) else float("nan")
