"""Greedy with a fixed group: all groups of one shape, models chosen by the paper's heuristic."""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.device_kind import DeviceKind
from headway.core.placement import GroupShape, PlacedModel
from headway.planner.placement.search import Found, SearchOptions, search_kinds
from headway.planner.placement.simulator import Rules
from headway.planner.placement.workload import Workload


def fixed_groups(
    models: Sequence[PlacedModel],
    kinds: Sequence[DeviceKind],
    *,
    shape: GroupShape,
    workload: Workload,
    rules: Rules,
) -> Found:
    """Searches as `search_kinds` on this shape alone, by the paper's algorithm; models that don't fit it are left
    out.
    """
    return search_kinds(
        restrict(models, shape),
        kinds,
        workload=workload,
        rules=rules,
        options=replace(SearchOptions.PAPER, buckets=False, partial=True),
    )


def restrict(models: Sequence[PlacedModel], shape: GroupShape) -> list[PlacedModel]:
    """Models that know one shape only."""
    return [
        replace(model, profiles=tuple(each for each in model.profiles if (each.pp, each.op) == (shape.pp, shape.op)))
        for model in models
    ]
