"""Stages of a plan that a user wrote, as a search fills them in."""

import re
from collections.abc import Sequence
from dataclasses import replace

from headway.core.execution.execution import Execution, StageSpec
from headway.core.plan.training import TrainingPlan
from headway.core.precision import Precision
from headway.core.training_cluster import TrainingCluster
from headway.core.training_layout_file import read_training_layout
from headway.core.training_run import plan_stages
from headway.planner.training.plan import fill_training_layout
from headway.planner.training.problem import TrainingProblem
from tests.planner.training.steps import COSTS, nodes_of
from tests.train.runs import BATCH, Captured, execution_of


def plan_of_stages(step: Captured, stages: Sequence[str], *, micro_batches: int = 2) -> TrainingPlan:
    """Stages of one layer each, with what a search chooses on their meshes."""
    num_devices = sum(int(a) * int(b) for a, b in (re.findall(r"mesh: (\d)x(\d)", text)[0] for text in stages))
    lines = [f"- {{layers: {number}-{number}, {text}}}" for number, text in enumerate(stages)]
    layout = "\n".join([f"micro_batches: {micro_batches}", "stages:", *lines])
    narrow = [replace(t, dtype="float32") if t.dtype == "float64" else t for t in step.graph.tensors]
    problem = TrainingProblem(
        model="gpt",
        graph=replace(step.graph, tensors=tuple(narrow)),
        cluster=TrainingCluster(groups=(nodes_of(1, num_devices),)),
        batch=BATCH,
        precision=Precision.FLOAT32,
        num_layers=len(stages),
    )
    return fill_training_layout(problem, COSTS, read_training_layout(layout, file="layout.yaml"), nonce="test")


def planned_stages(
    step: Captured, stages: Sequence[str], *, micro_batches: int = 2
) -> tuple[tuple[StageSpec, ...], tuple[tuple[int, ...], ...]]:
    """As they run, and their successors."""
    plan = plan_of_stages(step, stages, micro_batches=micro_batches)
    return plan_stages(plan, step.graph), tuple(plan.successors)


def planned(step: Captured, *stages: str) -> Execution:
    """Their lists."""
    made, successors = planned_stages(step, stages)
    return execution_of(step, made, successors=successors)
