"""The command `headway plan train`."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headway.cli.hardware_costs import find_measured
from headway.cli.options import AsJson, CatalogueFile, StateDir
from headway.cli.placement.options import Anew, Detach, Processes, RayAddress, TimeLimit
from headway.cli.plan_file import check_plan_path, write_plan
from headway.cli.search.started import tell_started
from headway.cli.training.document import training_document
from headway.cli.training.exporting import export_plan, find_format
from headway.cli.training.figure import draw_training_plan
from headway.cli.training.searching import TrainOptions, search_training_plan
from headway.cli.training.view import training_view
from headway.core.errors import NotFoundError
from headway.core.exports.formats import FORMATS
from headway.core.hardware.profile import HardwareProfile
from headway.core.precision import Precision
from headway.core.search_job import SearchJob
from headway.core.training_search import (
    METHODS,
    SCHEDULES,
    SOLVERS,
    check_method,
    check_schedule,
    check_solver,
)


def train(
    *,
    model: Annotated[str, typer.Option(help="zoo:NAME, a checkpoint directory or module:factory.")],
    cluster: Annotated[
        str, typer.Option(help="Nodes x GPUs x device, such as 8x8xV100, or a YAML file.", metavar="CLUSTER")
    ],
    batch: Annotated[int, typer.Option(help="Examples of one iteration, over all devices.", min=1)],
    seq: Annotated[int | None, typer.Option(help="Tokens of an example. Default: the model's longest.", min=1)] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(help="bfloat16 and float16 keep float32 masters. Default: bfloat16 where devices have it."),
    ] = None,
    micro_batches: Annotated[
        list[int] | None,
        typer.Option(help="Number of micro-batches; several times for several. Default: all are tried.", min=1),
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(help="Into which operators are clustered. Default: as many as the model repeats.", min=1),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write the plan: .yaml or .json.", dir_okay=False)] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Where to draw the plan: .svg, .png or .html.", dir_okay=False)
    ] = None,
    time_limit: TimeLimit = None,
    export: Annotated[
        list[str] | None,
        typer.Option(help=f"Also write the plan for another tool: {', '.join(FORMATS)}. Several times for several."),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="auto tries everything, alpa chains of stages, graphpipe graphs of them too, terapipe slices of "
            f"tokens too; baselines have less to choose from: {', '.join(METHODS[4:])}."
        ),
    ] = METHODS[0],
    schedule: Annotated[
        str,
        typer.Option(
            help="Of the pipeline: tessel searches one, auto takes the fastest that fits; published are "
            f"{', '.join(SCHEDULES[:-2])}."
        ),
    ] = SCHEDULES[0],
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Also price the baselines and other schedules, and find what would change the choice."
        ),
    ] = False,
    fixed: Annotated[
        Path | None, typer.Option(help="Price a plan of yours, a YAML file, instead of searching.", dir_okay=False)
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            help="Price operators as `profile hardware` measured them: 'here', or a profile's id. Default: by the "
            "catalogue's figures of the cluster's devices."
        ),
    ] = None,
    solver: Annotated[
        str,
        typer.Option(help=f"Solves the stages of the plan once more, exactly: {' or '.join(SOLVERS)}."),
    ] = SOLVERS[0],
    processes: Processes = None,
    ray: RayAddress = "",
    anew: Anew = False,
    detach: Detach = False,
    deadline_s: Annotated[
        float, typer.Option("--deadline", help="Seconds after which to give up capturing.", min=1)
    ] = 600.0,
    catalogue: CatalogueFile = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Plan the training of a model on a cluster: stages, meshes, shardings, micro-batches, memory. Needs no weights, no
    GPU and no running stack.

    Ctrl-C ends the search with the best plan so far. What was searched to its end is known at once.
    """
    if out is not None:
        check_plan_path(out)
    check_method(method)
    check_schedule(schedule)
    check_solver(solver)
    formats = [find_format(name) for name in export or ()]
    options = TrainOptions(
        model=model,
        cluster=cluster,
        batch=batch,
        seq=seq,
        precision=precision,
        micro_batches=tuple(micro_batches or ()),
        num_layers=layers,
        method=method,
        schedule=schedule,
        explains=explain,
        fixed=fixed,
        hardware=None if hardware is None else _measured(hardware, state_dir=state_dir),
        solver=solver,
        processes=processes,
        ray=ray,
        time_limit_s=time_limit,
        anew=anew,
        detach=detach,
        deadline_s=deadline_s,
        catalogue=catalogue,
        state_dir=state_dir,
    )
    found = asyncio.run(search_training_plan(options))
    if isinstance(found, SearchJob):
        tell_started(found, as_json=as_json)
        return
    plan = found.plan
    if out is not None:
        write_plan(plan, out)
    if figure is not None:
        draw_training_plan(plan, figure)
    if as_json:
        typer.echo(json.dumps(training_document(plan, ()), indent=2))
    else:
        Console().print(training_view(plan), highlight=False)
        for reason in plan.reasons:
            Console().print(f"- {reason}", highlight=False)
        if out is not None:
            typer.echo(f"Written to {out}; `headway plan show {out}` shows it again.")
    for path in export_plan(plan, found.graph, formats, beside=out):
        typer.echo(f"Written to {path}.", err=True)


def _measured(hardware: str, *, state_dir: Path | None) -> HardwareProfile:
    found = find_measured(hardware, state_dir=state_dir)
    if found is None:
        raise NotFoundError(
            f"No hardware profile is called '{hardware}'.",
            hint="`headway profile list` lists them; devices of the catalogue are named in --cluster.",
            field="hardware",
        )
    return found
