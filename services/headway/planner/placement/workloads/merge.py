"""Merges the arrivals of all models into one order. Pure."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.planner.placement.workload import Workload


def merged(models: Sequence[str], arrivals: Sequence[NDArray[np.float64]], *, slo_s: Sequence[float]) -> Workload:
    """`arrivals` and `slo_s` are of each model; requests at one moment keep the order of their models."""
    arrival_s = np.concatenate(arrivals)
    model = np.repeat(np.arange(len(models), dtype=np.int32), [len(each) for each in arrivals])
    order = np.argsort(arrival_s, kind="stable")
    return Workload(
        models=tuple(models),
        arrival_s=arrival_s[order],
        model=model[order],
        slo_s=np.asarray(slo_s, dtype=np.float64)[model[order]],
    )
