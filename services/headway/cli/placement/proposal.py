"""Proposes a placement to a running stack, and applies it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.cli.calls import calling_controller
from headway.core.plan.placement import PlacementPlan
from headway.core.plan.serving import ModelDeployment, ServingPlan
from headway.core.plan_change import PlanChange
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import common_pb2, controller_pb2, placement_pb2, planner_pb2

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The serving plan that a placement would give, and what would change; see
    `headway.controller.placements.Proposal`."""

    plan: ServingPlan
    changes: tuple[PlanChange, ...]
    replaces: str


async def propose(
    placement: PlacementPlan, deployments: Sequence[ModelDeployment], *, state_dir: Path | None
) -> Proposal:
    """Asks the controller what a placement would change, without applying it. HeadwayError where the workers cannot
    take it."""
    request = controller_pb2.ProposePlacementRequest(
        placement=to_pb(placement, placement_pb2.PlacementPlan),
        models=[to_pb(each, common_pb2.ModelDeployment) for each in deployments],
    )
    async with calling_controller(state_dir) as stub:
        return from_pb(await stub.ProposePlacement(request, timeout=_TIMEOUT_S), Proposal)


async def apply_proposal(placement: PlacementPlan, proposal: Proposal, *, state_dir: Path | None) -> None:
    """Applies a proposal and returns once it is desired; FailedPreconditionError where another one was applied
    meanwhile."""
    request = controller_pb2.ApplyPlanRequest(
        plan=to_pb(proposal.plan, planner_pb2.ServingPlan),
        placement=to_pb(placement, placement_pb2.PlacementPlan),
        replaces=proposal.replaces,
    )
    async with calling_controller(state_dir) as stub:
        await stub.ApplyPlan(request, timeout=_TIMEOUT_S)
