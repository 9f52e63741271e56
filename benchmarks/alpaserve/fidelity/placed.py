"""Writes a placement of one's own choice as a plan that `headway apply` takes."""

import time
from pathlib import Path

from headway.cli.plan_file import write_plan
from headway.core.placement import Placement
from headway.core.placement_problem import PlacementProblem
from headway.core.plan.placement import PLACEMENT_PLAN_VERSION, PlacementPlan
from headway.planner.placement.planning.buckets import buckets_of
from headway.planner.placement.planning.prediction import predict
from headway.planner.placement.workloads.source import Workloads


def write_placement(path: Path, problem: PlacementProblem, placement: Placement, workloads: Workloads) -> PlacementPlan:
    """Writes the plan; its id is the file's name."""
    plan = PlacementPlan(
        version=PLACEMENT_PLAN_VERSION,
        plan_id=f"placement-{path.stem}",
        created_at_s=time.time(),
        problem=problem,
        placement=placement,
        buckets=buckets_of(placement),
        predictions=predict(problem, placement, workloads),
        search_s=0.0,
    )
    write_plan(plan, path)
    return plan
