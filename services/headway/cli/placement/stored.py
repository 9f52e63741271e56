"""Placements by name: files, those that `headway plan serve` left in the state directory, those that were applied."""

import asyncio
from pathlib import Path

from headway.cli.calls import calling_controller
from headway.cli.plan_file import read_placement_plan, write_plan
from headway.client.stack import default_state_dir
from headway.core.errors import HeadwayError, NotFoundError
from headway.core.plan.placement import PlacementPlan
from headway.rpc.convert import from_pb
from headway.v1 import controller_pb2

LATEST = "latest"
_MOST_KEPT = 50
_TIMEOUT_S = 10.0


def store_plan(plan: PlacementPlan, state_dir: Path | None) -> None:
    """Writes a plan to the state directory under its id, and removes the oldest plans."""
    directory = _directory(state_dir)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_plan(plan, directory / f"{plan.plan_id}.json")
    for old in sorted(directory.glob("*.json"))[:-_MOST_KEPT]:
        old.unlink()


def find_plan(name: str, state_dir: Path | None) -> tuple[PlacementPlan, Path]:
    """Finds the plan of a file, of an id, or 'latest'; returns its path too, since the traces that it names may lie
    beside it.

    NotFoundError where there is none.
    """
    directory = _directory(state_dir)
    stored = sorted(directory.glob("*.json"))
    path = Path(name)
    if name == LATEST and stored:
        path = stored[-1]
    elif not path.exists() and directory / f"{name}.json" in stored:
        path = directory / f"{name}.json"
    if path.is_file():
        return read_placement_plan(path), path
    try:
        return asyncio.run(applied_placement(name, state_dir)), directory
    except HeadwayError as error:
        latest = f" The latest is {stored[-1].stem}." if stored else ""
        raise NotFoundError(
            f"There is no plan '{name}': no such file, and none of that id was made or applied here.",
            hint=f"Make one with `headway plan serve`.{latest}",
        ) from error


async def applied_placement(name: str, state_dir: Path | None) -> PlacementPlan:
    """The applied placement of an id, or 'latest' for the one in use; NotFoundError where there is none."""
    async with calling_controller(state_dir) as stub:
        request = controller_pb2.GetPlacementRequest(placement_id=name)
        response = await stub.GetPlacement(request, timeout=_TIMEOUT_S)
    return from_pb(response.placement, PlacementPlan)


def _directory(state_dir: Path | None) -> Path:
    return (state_dir or default_state_dir()) / "placements"
