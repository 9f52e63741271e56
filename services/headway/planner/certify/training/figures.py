"""Checks what a training plan says of itself: what it was made for, and its sums."""

import math
from collections.abc import Iterator

from headway.core.plan.training import TrainingPlan
from headway.core.training_cluster import TrainingCluster
from headway.planner.certify.training.step import PlannedStep

PRECISIONS = ("float32", "bfloat16", "float16")
_EXACT = 1e-6


def figure_violations(step: PlannedStep, cluster: TrainingCluster, *, graph_hash: str) -> Iterator[str]:
    plan = step.plan
    for field in ("plan_id", "model", "method"):
        if not getattr(plan, field):
            yield f"The plan has no {field}."
    if plan.graph_hash != graph_hash:
        yield f"The plan is of the graph {plan.graph_hash}, and the model's graph is {graph_hash}."
    if plan.cluster != cluster:
        yield f"The plan is for {plan.cluster.label}, and the cluster is {cluster.label}, or its figures differ."
    if plan.precision not in PRECISIONS:
        yield f"The precision is '{plan.precision}'; known are {', '.join(PRECISIONS)}."
    for field in ("created_at_s", "relative_error", "search_s", "search_cpu_s"):
        value = getattr(plan, field)
        if not (math.isfinite(value) and value >= 0):
            yield f"{field} is {value}."
    yield from _batch_violations(step)
    yield from _alternative_violations(plan)


def _batch_violations(step: PlannedStep) -> Iterator[str]:
    plan, graph = step.plan, step.graph
    if plan.batch < 1 or plan.num_micro_batches < 1:
        yield f"The batch is {plan.batch}, in {plan.num_micro_batches} micro-batches."
        return
    if plan.batch % plan.num_micro_batches:
        yield f"{plan.num_micro_batches} micro-batches do not divide the batch of {plan.batch}."
        return
    if graph.batch and graph.batch != plan.micro_batch:
        yield (
            f"{plan.num_micro_batches} micro-batches of {graph.batch} make "
            f"{plan.num_micro_batches * graph.batch}, and the batch is {plan.batch}."
        )
        return
    for number, stage in enumerate(plan.stages):
        size = plan.micro_batch_of(stage)
        if size < 1 or plan.micro_batch % size:
            yield f"Stage {number} has micro-batches of {size} examples, which do not divide {plan.micro_batch}."
            return
    flops = graph.flops * plan.num_micro_batches
    if not math.isclose(plan.flops, flops, rel_tol=_EXACT):
        yield f"The plan says {plan.flops:.6g} operations an iteration, and the graph has {flops:.6g}."


def _alternative_violations(plan: TrainingPlan) -> Iterator[str]:
    for number, alternative in enumerate(plan.alternatives):
        if not alternative.name:
            yield f"Alternative {number} has no name."
        seconds = alternative.least_s if alternative.iteration_s is None else alternative.iteration_s
        if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
            yield f"Alternative '{alternative.name}' takes {seconds} s."
