"""Checks a whole training plan against its graph and its cluster."""

from headway.core.graph import Graph
from headway.core.plan.training import TrainingPlan
from headway.core.training_cluster import TrainingCluster
from headway.planner.certify.training.crossings import crossing_violations
from headway.planner.certify.training.devices import device_violations
from headway.planner.certify.training.figures import figure_violations
from headway.planner.certify.training.memory import memory_violations
from headway.planner.certify.training.operators import coverage_violations, order_violations, successor_violations
from headway.planner.certify.training.schedule import graph_violations, schedule_violations
from headway.planner.certify.training.shardings import sharding_violations
from headway.planner.certify.training.shared import sharing_violations
from headway.planner.certify.training.slices import slice_violations
from headway.planner.certify.training.state import state_violations
from headway.planner.certify.training.step import PlannedStep


def find_training_violations(
    plan: TrainingPlan, graph: Graph, cluster: TrainingCluster, *, graph_hash: str
) -> list[str]:
    """Lists the rules that the plan breaks, a sentence each; empty for a valid plan.

    What rests on something that is broken is not looked at: operators in no stage have no shardings.

    Args:
        graph: of one micro-batch.
        cluster: that the plan was asked for.
        graph_hash: of the graph as it was captured.
    """
    step = PlannedStep(plan, graph)
    figures = list(figure_violations(step, cluster, graph_hash=graph_hash))
    if not plan.stages:
        return [*figures, "The plan has no stages."]
    devices, circles = list(device_violations(plan, cluster)), list(graph_violations(plan))
    slices = list(slice_violations(step))
    found = [*figures, *devices, *slices, *(circles or (() if slices else schedule_violations(plan)))]
    if uncovered := list(coverage_violations(step)):
        return [*found, *uncovered]
    found += order_violations(step)
    found += [] if circles else successor_violations(step)
    shardings = [] if devices else [*sharding_violations(step), *state_violations(step)]
    found += [] if devices or circles or figures else crossing_violations(step, cluster)
    found += [] if devices or figures else sharing_violations(step, cluster)
    memory = [] if devices or shardings or figures else memory_violations(step, cluster)
    return [*found, *shardings, *memory]
