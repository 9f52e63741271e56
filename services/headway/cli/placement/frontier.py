"""The command `headway plan frontier`."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headway.cli.options import AsJson, CatalogueFile, StateDir
from headway.cli.placement.figure import check_figure_path, draw
from headway.cli.placement.frontier_view import frontier_view
from headway.cli.placement.interrupt import interruptible, start_then_stop
from headway.cli.placement.options import (
    AnswerOverhead,
    Cluster,
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
from headway.cli.placement.planner_process import planning
from headway.cli.placement.problem import ProblemOptions, file_contents, make_problem, read_inputs
from headway.cli.placement.progress import showing
from headway.core.codec import to_document
from headway.core.frontier import Frontier, Question
from headway.core.plan.placement import PlacementProgress
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import placement_pb2


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
    catalogue: CatalogueFile = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """How far something can go while enough requests still meet their SLOs: a search at each of several values.

    Ctrl-C ends it with what is known so far.
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
    found = asyncio.run(_find(options, question, target=attainment, time_limit_s=time_limit))
    if figure is not None:
        draw(found, figure)
    if as_json:
        typer.echo(json.dumps(to_document(found), indent=2))
    else:
        Console().print(frontier_view(found), highlight=False)
        if figure is not None:
            typer.echo(f"Drawn in {figure}.")


async def _find(options: ProblemOptions, question: Question, *, target: float, time_limit_s: float | None) -> Frontier:
    inputs, console = await read_inputs(options), Console(stderr=True)
    with interruptible(console) as stop, showing(console) as show:
        async with planning(options.catalogue) as planner:
            problem = await make_problem(inputs, planner, show)
            start = placement_pb2.FindFrontierStart(
                problem=to_pb(problem, placement_pb2.PlacementProblem),
                files=file_contents(inputs.files),
                question=question,
                target=target,
                time_limit_s=time_limit_s,
            )
            requests = start_then_stop(
                placement_pb2.FindFrontierRequest(start=start), placement_pb2.FindFrontierRequest(stop=True), stop
            )
            found = None
            async for response in planner.stub.FindFrontier(requests, metadata=planner.metadata):
                if response.HasField("frontier"):
                    found = from_pb(response.frontier, Frontier)
                else:
                    show(from_pb(response.progress, PlacementProgress))
            assert found is not None, "a search that ends well has a curve"
            return found
