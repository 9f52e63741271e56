"""The command `headway plan serve`."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headway.cli.options import AsJson, CatalogueFile, StateDir
from headway.cli.placement.options import (
    Anew,
    AnswerOverhead,
    Cluster,
    Detach,
    Duration,
    HeldOut,
    Models,
    Processes,
    Profiles,
    QueuePolicy,
    RayAddress,
    Rules,
    Seed,
    SloScale,
    TimeLimit,
    Workload,
)
from headway.cli.placement.problem import ProblemOptions
from headway.cli.placement.searching import SearchOptions, search_placements
from headway.cli.placement.stored import store_plan
from headway.cli.placement.view import placement_view
from headway.cli.plan_file import check_plan_path, write_plan
from headway.cli.search.started import tell_started
from headway.core.placement_search import PlacementSearch
from headway.core.plan.document import plan_from_document, to_plan_document
from headway.core.plan.placement import PlacementPlan
from headway.core.search_job import SearchJob


def serve(
    *,
    models: Models,
    cluster: Cluster,
    workload: Workload,
    held_out: HeldOut = "",
    profiles: Profiles = None,
    slo_scale: SloScale = 5.0,
    duration: Duration = None,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Where to write the plan: .yaml or .json.", dir_okay=False)] = None,
    time_limit: TimeLimit = None,
    processes: Processes = None,
    ray: RayAddress = "",
    rules: Rules = "serving",
    answer_overhead: AnswerOverhead = None,
    queue_policy: QueuePolicy = None,
    anew: Anew = False,
    detach: Detach = False,
    catalogue: CatalogueFile = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Place many models on few devices so that most requests meet their SLOs. Needs no running stack.

    Ctrl-C ends the search with the best placement so far, and the same command again goes on from there. What was
    searched to its end is known at once.
    """
    if out is not None:
        check_plan_path(out)
    options = ProblemOptions(
        models=models,
        cluster=cluster,
        workload=workload,
        held_out=held_out,
        profiles=profiles,
        catalogue=catalogue,
        slo_scale=slo_scale,
        duration_s=duration,
        seed=seed,
        rules=rules,
        answer_overhead_s=answer_overhead,
        queue_policy=queue_policy,
        state_dir=state_dir,
    )
    found = asyncio.run(
        search_placements(
            "placement",
            lambda problem: PlacementSearch(problem=problem, processes=processes),
            problem=options,
            options=SearchOptions(time_limit_s=time_limit, detach=detach, anew=anew, ray=ray, processes=processes),
        )
    )
    if isinstance(found, SearchJob):
        tell_started(found, as_json=as_json)
        return
    plan = plan_from_document(PlacementPlan, found)
    store_plan(plan, state_dir)
    if out is not None:
        write_plan(plan, out)
    if as_json:
        typer.echo(json.dumps(to_plan_document(plan), indent=2))
    else:
        Console().print(placement_view(plan), highlight=False)
        if out is not None:
            typer.echo(f"Written to {out}; `headway plan explain {out} --instead groups=...` tries others.")
        typer.echo(f"`headway apply {out or plan.plan_id}` makes it so on a running stack.")
