"""The attainment of what is live on the requests of a placement."""

from headway.cli.calls import calling
from headway.cli.placement.problem import file_contents
from headway.cli.running import endpoint_of
from headway.client import ClusterStatus
from headway.client.access import Access
from headway.core.catalogue import read_catalogue
from headway.core.live_placement import live_placement, placement_text
from headway.core.plan.placement import PlacementAlternative, PlacementPlan
from headway.core.plan.serving import ServingPlan
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import placement_pb2, planner_pb2_grpc

_TIMEOUT_S = 120.0


async def live_attainment(
    placement: PlacementPlan, files: dict[str, bytes], *, live: ServingPlan, status: ClusterStatus, access: Access
) -> float | None:
    """Simulates the live placement on the placement's held-out requests, by the stack's planner; None where none of its
    models is live. InvalidArgumentError where a live group has a model without a profile for it."""
    catalogue = read_catalogue(None) if placement.problem.other_clusters else None
    groups = live_placement(live, {model.name for model in placement.problem.models}, catalogue=catalogue)
    if not groups.groups:
        return None
    request = placement_pb2.TryPlacementRequest(
        plan=to_pb(placement, placement_pb2.PlacementPlan),
        files=file_contents(files),
        instead=placement_text(groups),
    )
    async with calling(endpoint_of("planner", status), planner_pb2_grpc.PlannerServiceStub, access=access) as planner:
        response = await planner.TryPlacement(request, timeout=_TIMEOUT_S)
    return from_pb(response.alternative, PlacementAlternative).predictions.held_out.attainment
