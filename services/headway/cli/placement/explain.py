"""`headway plan explain` of a placement: what speaks against the alternatives, and against one that the user names."""

import asyncio
import json
from pathlib import Path

import typer
from rich.console import Console

from headway.cli.placement.files import traces_of
from headway.cli.placement.problem import file_contents
from headway.cli.placement.view import alternative_view, placement_view
from headway.cli.search.planner_link import planner_link
from headway.core.codec import to_document
from headway.core.plan.placement import PlacementAlternative, PlacementPlan
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import placement_pb2


def explain_placement(
    plan: PlacementPlan,
    path: Path,
    *,
    instead: str | None,
    catalogue: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Prints the plan of a file with its alternatives, or with one that the user asked to try instead."""
    if instead is None:
        if as_json:
            typer.echo(json.dumps(to_document(plan.alternatives), indent=2))
        else:
            Console().print(placement_view(plan), highlight=False)
        return
    tried = asyncio.run(_try(plan, instead, traces_of(plan.problem.workload, plan=path), catalogue, state_dir))
    if as_json:
        document = {"plan": plan.predictions, "instead": tried}
        typer.echo(json.dumps(to_document(document), indent=2))
    else:
        Console().print(alternative_view(plan, tried), highlight=False)


async def _try(
    plan: PlacementPlan, instead: str, files: dict[str, bytes], catalogue: Path | None, state_dir: Path | None
) -> PlacementAlternative:
    request = placement_pb2.TryPlacementRequest(
        plan=to_pb(plan, placement_pb2.PlacementPlan),
        files=file_contents(files),
        instead=instead,
    )
    with Console(stderr=True).status(f"simulating {instead}"):
        async with planner_link(state_dir, catalogue=catalogue) as planner, planner.stub() as stub:
            response = await stub.TryPlacement(request)
    return from_pb(response.alternative, PlacementAlternative)
