"""Selective replication: no model parallelism, and as many replicas of each model as its traffic asks for."""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.device_kind import DeviceKind
from headway.core.placement import PlacedModel, Placement
from headway.planner.placement.baselines.fixed import restrict
from headway.planner.placement.baselines.uniform import DEVICE, uniform_on_kinds
from headway.planner.placement.search import SearchOptions, search_kinds
from headway.planner.placement.simulator import Rules, attainment
from headway.planner.placement.workload import Workload

LEAST_GAIN = 0.015
"""On the searched trace, for which uniform replication is given up: a smaller gain is often lost on the next trace."""


def selective_replication(
    models: Sequence[PlacedModel],
    kinds: Sequence[DeviceKind],
    *,
    workload: Workload,
    rules: Rules,
    options: SearchOptions = SearchOptions.QUICK,
) -> Placement:
    """Searches on single devices; takes uniform replication where that is as good but for chance.

    Models that don't fit one device are left out; FailedPreconditionError if none does.
    """
    found = search_kinds(
        restrict(models, DEVICE),
        kinds,
        workload=workload,
        rules=rules,
        options=replace(options, buckets=False, partial=True),
    )
    uniform = uniform_on_kinds(models, kinds)
    least = attainment(models, uniform, workload, rules)
    return found.placement if found.attainment > least + LEAST_GAIN else uniform
