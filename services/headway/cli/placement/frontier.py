"""The command `headway plan frontier`."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headway.cli.figure_file import check_figure_path
from headway.cli.options import AsJson, CatalogueFile, StateDir
from headway.cli.placement.figure import draw
from headway.cli.placement.frontier_view import frontier_view
from headway.cli.placement.options import (
    Anew,
    AnswerOverhead,
    Cluster,
    Detach,
    Duration,
    HeldOut,
    Models,
    Profiles,
    QueuePolicy,
    Rules,
    Seed,
    SloScale,
    TimeLimit,
    Workload,
)
from headway.cli.placement.problem import ProblemOptions
from headway.cli.placement.searching import SearchOptions, search_placements
from headway.cli.search.started import tell_started
from headway.core.codec import from_document, to_document
from headway.core.frontier import Frontier, Question
from headway.core.placement_search import FrontierSearch
from headway.core.search_job import SearchJob


def frontier(
    question: Annotated[
        Question,
        typer.Argument(help="devices: how few; rate: how high; cv: how bursty; slo: how tight a scale."),
    ],
    *,
    models: Models,
    cluster: Cluster,
    workload: Workload,
    attainment: Annotated[float, typer.Option(help="Share of requests that must meet their SLO.", max=1.0)] = 0.99,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the curve: .png, .svg, .pdf or .html.", dir_okay=False)
    ] = None,
    held_out: HeldOut = "",
    profiles: Profiles = None,
    slo_scale: SloScale = 5.0,
    duration: Duration = None,
    seed: Seed = 0,
    time_limit: TimeLimit = None,
    rules: Rules = "serving",
    answer_overhead: AnswerOverhead = None,
    queue_policy: QueuePolicy = None,
    anew: Anew = False,
    detach: Detach = False,
    catalogue: CatalogueFile = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """How far something can go while enough requests still meet their SLOs: a search at each of several values.

    Ctrl-C ends it with what is known so far, and the same command again goes on from there.
    """
    if figure is not None:
        check_figure_path(figure)
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
    answer = asyncio.run(
        search_placements(
            "frontier",
            lambda problem: FrontierSearch(problem=problem, question=question, target=attainment),
            problem=options,
            options=SearchOptions(time_limit_s=time_limit, detach=detach, anew=anew),
        )
    )
    if isinstance(answer, SearchJob):
        tell_started(answer, as_json=as_json)
        return
    found = from_document(Frontier, answer)
    if figure is not None:
        draw(found, figure)
    if as_json:
        typer.echo(json.dumps(to_document(found), indent=2))
    else:
        Console().print(frontier_view(found), highlight=False)
        if figure is not None:
            typer.echo(f"Drawn in {figure}.")
