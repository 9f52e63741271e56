"""Baselines that placements are compared with: simpler strategies, one a file. Pure."""

from headway.planner.placement.baselines.clockwork import WindowedPlacement, replace_by_window
from headway.planner.placement.baselines.fixed import fixed_groups
from headway.planner.placement.baselines.selective import selective_replication
from headway.planner.placement.baselines.uniform import uniform_on_kinds, uniform_replication

__all__ = [
    "WindowedPlacement",
    "fixed_groups",
    "replace_by_window",
    "selective_replication",
    "uniform_on_kinds",
    "uniform_replication",
]
