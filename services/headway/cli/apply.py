"""The command `headway apply`."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from headway.cli.applying import await_applied
from headway.cli.change_view import change_view
from headway.cli.options import AsJson, StateDir
from headway.cli.placement.cluster import setting_differences
from headway.cli.placement.deployments import find_deployments
from headway.cli.placement.files import traces_of
from headway.cli.placement.live import live_attainment
from headway.cli.placement.proposal import apply_proposal, propose
from headway.cli.placement.stored import find_plan
from headway.cli.running import cluster_status
from headway.client import ClusterStatus
from headway.client.access import find_access
from headway.core.codec import to_document
from headway.core.errors import FailedPreconditionError, HeadwayError
from headway.core.plan.placement import PlacementPlan
from headway.core.plan_change import ChangeKind

app = typer.Typer(add_completion=False)


@app.command()
def apply(
    plan: Annotated[
        str,
        typer.Argument(
            help="A file that `headway plan serve` wrote, the id of a plan that it made, or of one that was applied; "
            "'latest' is the last that was made."
        ),
    ],
    *,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME=DIR",
            help="Checkpoint of a model that is not served yet. Repeatable. Default: what the plan captured.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Make a placement so on a running stack.

    Without dropping requests: what is new is loaded first, what is not needed is drained afterwards. Ctrl-C does not
    stop that.
    """
    placement, path = find_plan(plan, state_dir)
    status = cluster_status(None, api_key=None, state_dir=state_dir)
    names = list(dict.fromkeys(name for group in placement.placement.groups for name in group.models))
    deployments = find_deployments(placement.problem, names, live=status.plan, arguments=model or ())
    proposal = asyncio.run(propose(placement, deployments, state_dir=state_dir))
    before = _before(placement, path, status, state_dir=state_dir)
    differences = setting_differences(placement.problem, status.controller)
    changes_nothing = all(change.kind is ChangeKind.KEEP for change in proposal.changes)
    if as_json:
        document: dict[str, Any] = {
            "placement_id": placement.plan_id,
            "attainment_before": before,
            "attainment_after": placement.predictions.held_out.attainment,
            "changes": proposal.changes,
            "differences": differences,
        }
        typer.echo(json.dumps(to_document(document), indent=2))
    else:
        view = change_view(placement, proposal.changes, before=before, live=status.plan, differences=differences)
        Console().print(view, highlight=False)
    if dry_run:
        return
    if not (yes or changes_nothing):
        _confirm(has_output=not as_json)
    asyncio.run(apply_proposal(placement, proposal, state_dir=state_dir))
    try:
        asyncio.run(await_applied(placement.plan_id, state_dir, console=Console(stderr=True)))
    except KeyboardInterrupt:
        typer.echo("The stack goes on with it; `headway status` shows how far it is.", err=True)
        raise typer.Exit(130) from None
    if not as_json:
        typer.echo(f"{placement.plan_id} is live.")


def _before(placement: PlacementPlan, path: Path, status: ClusterStatus, *, state_dir: Path | None) -> float | None:
    """Attainment that what is live would have on the placement's own requests; None where it cannot be simulated."""
    if status.plan is None:
        return None
    try:
        files = traces_of(placement.problem.workload, plan=path)
        return asyncio.run(
            live_attainment(placement, files, live=status.plan, status=status, access=find_access(state_dir))
        )
    except HeadwayError:
        return None


def _confirm(*, has_output: bool) -> None:
    if not (sys.stdin.isatty() and has_output):
        raise FailedPreconditionError("Nothing was changed: nobody is there to be asked.", hint="Give --yes.")
    if not typer.confirm("Make it so?", default=False):
        typer.echo("Nothing was changed.")
        raise typer.Exit(1)
