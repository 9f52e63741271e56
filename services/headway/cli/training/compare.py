"""The command `headway plan compare`."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headway.cli.figure_file import check_figure_path
from headway.cli.options import AsJson, CatalogueFile, StateDir
from headway.cli.placement.options import Anew, TimeLimit
from headway.cli.search.progress import showing
from headway.cli.training.captures import capture_training_step
from headway.cli.training.comparison import Cell, Comparison
from headway.cli.training.comparison_figure import draw_comparison
from headway.cli.training.searching import PlannedTraining, TrainOptions, search_training_plan
from headway.core.errors import FailedPreconditionError
from headway.core.precision import Precision
from headway.core.training_search import METHODS, check_method

_METHODS = ("auto", "alpa", "graphpipe", "terapipe", "megatron", "data-parallel")


def compare(
    *,
    model: Annotated[
        list[str],
        typer.Option(help="zoo:NAME, a checkpoint directory or module:factory. Several times for several."),
    ],
    cluster: Annotated[
        list[str],
        typer.Option(
            help="Nodes x GPUs x device, such as 8x8xV100, or a YAML file. Several times for several.",
            metavar="CLUSTER",
        ),
    ],
    batch: Annotated[int, typer.Option(help="Examples of one iteration, over all devices.", min=1)],
    method: Annotated[
        list[str] | None,
        typer.Option(help=f"Several times for several: {', '.join(METHODS)}. Default: {', '.join(_METHODS)}."),
    ] = None,
    seq: Annotated[int | None, typer.Option(help="Tokens of an example. Default: the model's longest.", min=1)] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(help="bfloat16 and float16 keep float32 masters. Default: bfloat16 where devices have it."),
    ] = None,
    micro_batches: Annotated[
        list[int] | None,
        typer.Option(help="Number of micro-batches; several times for several. Default: all are tried.", min=1),
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Where to draw the comparison: .svg, .png or .html.", dir_okay=False)
    ] = None,
    time_limit: TimeLimit = None,
    anew: Anew = False,
    deadline_s: Annotated[
        float, typer.Option("--deadline", help="Seconds after which to give up capturing.", min=1)
    ] = 600.0,
    catalogue: CatalogueFile = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Plan training by several methods, of several models, on several clusters, and show all in one table.

    Each is a search as of `headway plan train`: Ctrl-C ends the one under way with its best so far, and what was
    searched to its end is known at once.
    """
    if figure is not None:
        check_figure_path(figure)
    methods = list(dict.fromkeys(method or _METHODS))
    for each in methods:
        check_method(each)
    options = [
        TrainOptions(
            model=of_model,
            cluster=on_cluster,
            batch=batch,
            seq=seq,
            precision=precision,
            micro_batches=tuple(micro_batches or ()),
            num_layers=None,
            method=by_method,
            explains=False,
            fixed=None,
            hardware=None,
            time_limit_s=time_limit,
            anew=anew,
            detach=False,
            deadline_s=deadline_s,
            catalogue=catalogue,
            state_dir=state_dir,
        )
        for of_model, on_cluster, by_method in product(dict.fromkeys(model), dict.fromkeys(cluster), methods)
    ]
    comparison = Comparison(asyncio.run(_searched(options)))
    if figure is not None:
        draw_comparison(comparison, figure)
    if as_json:
        typer.echo(json.dumps(comparison.document(), indent=2))
    else:
        Console().print(comparison.view(), highlight=False)
    if figure is not None:
        typer.echo(f"Drawn to {figure}.", err=True)


async def _searched(options: Sequence[TrainOptions]) -> list[Cell]:
    """Searches one after the other. What cannot be planned, such as what does not fit, is a cell too; what is wrong
    with the question, such as a model's name, ends the command."""
    console, cells = Console(stderr=True), []
    graphs: dict[str, bytes] = {}
    for number, each in enumerate(options, 1):
        what = f"{each.model} on {each.cluster} by {each.method}"
        console.print(f"{number} of {len(options)}: {what}", highlight=False, soft_wrap=True)
        cell = Cell(model=each.model, cluster=each.cluster, method=each.method)
        if each.model not in graphs:
            graphs[each.model] = await _captured(each, console)
        try:
            found = await search_training_plan(each, graph=graphs[each.model])
        except FailedPreconditionError as error:
            cells.append(replace(cell, why_not=error.message))
            continue
        assert isinstance(found, PlannedTraining), "no search is detached"
        cells.append(replace(cell, plan=found.plan))
    return cells


async def _captured(options: TrainOptions, console: Console) -> bytes:
    with showing(console) as show:
        return await capture_training_step(
            options.model, seq=options.seq, state_dir=options.state_dir, deadline_s=options.deadline_s, show=show
        )
