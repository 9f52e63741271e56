"""Predicts the attainment of a placement by simulation. Pure."""

from dataclasses import replace

import numpy as np

from headway.core.errors import InvalidArgumentError
from headway.core.line import QueuePolicy
from headway.core.placement import Placement
from headway.core.placement_problem import PlacementProblem
from headway.core.plan.placement import PredictedAttainment, PredictedModel, Predictions
from headway.planner.placement.simulator import Rules, simulate
from headway.planner.placement.workload import Workload
from headway.planner.placement.workloads.source import Workloads

_RULES = {"serving": Rules.SERVING, "artifact": Rules.ARTIFACT}


def rules_of(problem: PlacementProblem) -> Rules:
    """The simulation rules of a problem; InvalidArgumentError where there are none of that name, they have an overhead
    of their own, or they do not go with its queue policy."""
    if problem.rules not in _RULES:
        raise InvalidArgumentError(
            f"There are no rules '{problem.rules}'.", hint=f"Known are {', '.join(_RULES)}.", field="rules"
        )
    rules = _RULES[problem.rules]
    if problem.answer_overhead_s and rules.request_overhead_s:
        raise InvalidArgumentError(
            f"The rules '{problem.rules}' have an overhead of their own.",
            hint="Leave --answer-overhead out, or take --rules serving.",
            field="answer_overhead_s",
        )
    generating = next((model for model in problem.models if model.generates), None)
    if generating is not None and problem.queue_policy is not QueuePolicy.FCFS:
        raise InvalidArgumentError(
            f"'{generating.name}' generates: with such models groups are simulated first come, first served.",
            hint="Take --queue-policy fcfs.",
            field="queue_policy",
        )
    return replace(
        rules,
        request_overhead_s=rules.request_overhead_s + problem.answer_overhead_s,
        queue_policy=problem.queue_policy,
    )


def predict(problem: PlacementProblem, placement: Placement, workloads: Workloads) -> Predictions:
    return Predictions(
        searched=predict_one(problem, placement, workloads.searched),
        held_out=predict_one(problem, placement, workloads.held_out),
    )


def predict_one(problem: PlacementProblem, placement: Placement, workload: Workload) -> PredictedAttainment:
    """Predicts attainment on one workload; InvalidArgumentError where a group has a model that is unknown or has no
    profile for it."""
    outcome = simulate(problem.placed_models, placement, workload, rules_of(problem))
    counts = np.bincount(workload.model, minlength=len(workload.models))
    num_served = len(workload) - outcome.num_refused
    return PredictedAttainment(
        attainment=outcome.attainment,
        models=tuple(
            PredictedModel(model=name, num_requests=int(count), attainment=outcome.attainment_by_model[name])
            for name, count in zip(workload.models, counts, strict=True)
            if count
        ),
        utilisation=outcome.utilisation,
        mean_latency_s=outcome.mean_latency_s if num_served else None,
        p99_latency_s=outcome.latency_percentile_s(99) if num_served else None,
    )
