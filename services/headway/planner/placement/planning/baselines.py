"""Baselines that the search is compared with, under the same rules. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from headway.core.errors import FailedPreconditionError
from headway.core.line import QueuePolicy
from headway.core.placement import GroupShape, Placement
from headway.core.placement_problem import PlacementProblem
from headway.core.plan.placement import PredictedAttainment, Predictions
from headway.planner.placement.baselines import (
    fixed_groups,
    replace_by_window,
    selective_replication,
    uniform_on_kinds,
)
from headway.planner.placement.planning.candidate import CandidatePlacement
from headway.planner.placement.planning.prediction import predict, rules_of
from headway.planner.placement.simulator import attainment
from headway.planner.placement.workload import Workload
from headway.planner.placement.workloads.source import Workloads

_NOTHING = Placement(groups=())
_CLOCKWORK_WINDOW_S = 60.0
_UPPER_BOUND = (
    f"It is an upper bound: every {_CLOCKWORK_WINDOW_S:g} s the models are replicated anew for the very requests that "
    "are to come, and loading them takes no time."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A way to place the models without the search.

    Attributes:
        is_quick: whether it takes so little time that nobody who is in a hurry minds.
    """

    name: str
    weigh: Callable[[PlacementProblem, Workloads], CandidatePlacement]
    is_quick: bool


def _replicate(problem: PlacementProblem, workloads: Workloads) -> CandidatePlacement:
    try:
        placement = selective_replication(
            problem.placed_models,
            problem.kinds,
            workload=workloads.searched,
            rules=rules_of(problem),
        )
    except FailedPreconditionError:  # no model fits one device, or is fast enough on it
        placement = _NOTHING
    return _candidate("selective replication", placement, problem, workloads)


def _deal_out(problem: PlacementProblem, workloads: Workloads) -> CandidatePlacement:
    return _candidate("round robin", uniform_on_kinds(problem.placed_models, problem.kinds), problem, workloads)


def _fix_groups(problem: PlacementProblem, workloads: Workloads) -> CandidatePlacement:
    """The best placement in pipelines of one length, over all lengths."""
    shapes = sorted({GroupShape(pp=profile.pp, op=1) for profile in problem.profiles if profile.op == 1 < profile.pp})
    placements = [_fixed(shape, problem, workloads.searched) for shape in shapes]
    best = max(
        placements,
        key=lambda placement: attainment(problem.placed_models, placement, workloads.searched, rules_of(problem)),
        default=_NOTHING,
    )
    return _candidate("greedy with a fixed group size", best, problem, workloads)


def _fixed(shape: GroupShape, problem: PlacementProblem, workload: Workload) -> Placement:
    try:
        return fixed_groups(
            problem.placed_models,
            problem.kinds,
            shape=shape,
            workload=workload,
            rules=rules_of(problem),
        ).placement
    except FailedPreconditionError:  # no model can be served in time on such a group
        return _NOTHING


def _replace(problem: PlacementProblem, workloads: Workloads) -> CandidatePlacement:
    return CandidatePlacement(
        name="Clockwork-style re-placement",
        placement=None,
        predictions=Predictions(
            searched=_by_window(problem, workloads.searched), held_out=_by_window(problem, workloads.held_out)
        ),
        remarks=(_UPPER_BOUND,),
    )


def _by_window(problem: PlacementProblem, workload: Workload) -> PredictedAttainment:
    try:
        replaced = replace_by_window(
            problem.placed_models,
            problem.kinds,
            workload=workload,
            rules=rules_of(problem),
            window_s=_CLOCKWORK_WINDOW_S,
        )
    except FailedPreconditionError:  # in some window no model can be served in time on one device
        return PredictedAttainment(attainment=0.0, models=(), utilisation=())
    return PredictedAttainment(attainment=replaced.attainment, models=(), utilisation=())


def other_policy(
    chosen: CandidatePlacement, problem: PlacementProblem, workloads: Workloads
) -> CandidatePlacement | None:
    """The same groups under the other queue policy; None where only one policy is simulated."""
    assert chosen.placement is not None
    if problem.rules != "serving" or any(model.generates for model in problem.models):
        return None
    policy, name = QueuePolicy.LEAST_SLACK, "the same groups, least slack first"
    if problem.queue_policy is policy:
        policy, name = QueuePolicy.FCFS, "the same groups, first come, first served"
    return CandidatePlacement(
        name=name,
        placement=chosen.placement,
        predictions=predict(replace(problem, queue_policy=policy), chosen.placement, workloads),
        remarks=(f"For it, `headway plan serve` and `headway up` take --queue-policy {policy}.",),
    )


def _candidate(name: str, placement: Placement, problem: PlacementProblem, workloads: Workloads) -> CandidatePlacement:
    return CandidatePlacement(name=name, placement=placement, predictions=predict(problem, placement, workloads))


REPLICATION = Baseline(name="selective replication", weigh=_replicate, is_quick=True)
BASELINES = (
    REPLICATION,
    Baseline(name="round robin", weigh=_deal_out, is_quick=True),
    Baseline(name="greedy with a fixed group size", weigh=_fix_groups, is_quick=False),
    Baseline(name="Clockwork-style re-placement", weigh=_replace, is_quick=False),
)
