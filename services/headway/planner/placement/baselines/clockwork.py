"""Re-placement in the way of Clockwork: selective replication anew for each window of time, at no cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headway.core.device_kind import DeviceKind
from headway.core.placement import PlacedModel, Placement
from headway.planner.placement.baselines.selective import selective_replication
from headway.planner.placement.search import SearchOptions
from headway.planner.placement.simulator import Rules, attainment
from headway.planner.placement.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedPlacement:
    """Attributes:
    placements: one for each window that had requests.
    """

    attainment: float
    placements: tuple[Placement, ...]


def replace_by_window(
    models: Sequence[PlacedModel],
    kinds: Sequence[DeviceKind],
    *,
    workload: Workload,
    rules: Rules,
    window_s: float = 60.0,
    options: SearchOptions = SearchOptions.QUICK,
) -> WindowedPlacement:
    """Places models anew for each window. Each window is placed on its own requests and begins with empty queues: more
    than any real system could do.
    """
    placements, met = [], 0.0
    for window in windows(workload, window_s):
        placement = selective_replication(
            models,
            kinds,
            workload=window,
            rules=rules,
            options=replace(options, resamples=0),
        )
        placements.append(placement)
        met += attainment(models, placement, window, rules) * len(window)
    return WindowedPlacement(attainment=met / len(workload), placements=tuple(placements))


def windows(workload: Workload, window_s: float) -> Iterator[Workload]:
    """Parts with requests, each from its own begin on."""
    number = np.floor_divide(workload.arrival_s, window_s).astype(np.int64)
    for each in np.unique(number):
        yield workload.take(number == each, start_s=each * window_s)
