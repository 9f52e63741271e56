"""The command `headway plan schedule`, and with a file `check` and `improve`."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console

from headway.cli.figure_file import check_figure_path
from headway.cli.options import AsJson, StateDir
from headway.cli.placement.options import Anew, TimeLimit
from headway.cli.schedule.beside import read_beside
from headway.cli.schedule.figure import draw_schedule
from headway.cli.schedule.given import given_search
from headway.cli.schedule.searching import search_schedule
from headway.cli.schedule.source import find_placement
from headway.cli.schedule.trace import chrome_trace
from headway.cli.schedule.view import schedule_view
from headway.core.codec import to_document
from headway.core.errors import InvalidArgumentError
from headway.core.exports.torch_pipelining import torch_csv
from headway.core.pipeline_shapes import SHAPES, ShapeOptions
from headway.core.schedule_search import (
    PUBLISHED,
    ScheduleAction,
    ScheduleReport,
    ScheduleSearch,
    Solver,
    check_method,
    search_of,
)

app = typer.Typer(
    add_completion=False,
    help="The best pipeline schedule for a placement; check or improve one of yours.",
    no_args_is_help=True,
)

_MICRO_BATCHES = 16
_MICROSECONDS = 1e6

Memory: TypeAlias = Annotated[
    float | None, typer.Option(help="Of each device, in the unit of the tasks' memory. Default: any.", min=0)
]
Figure: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Draw the schedule and its memory: .svg, .png, .pdf, or .html to point at.", dir_okay=False),
]
Trace: TypeAlias = Annotated[
    Path | None, typer.Option(help="Write a Chrome trace; Perfetto opens it too.", dir_okay=False)
]
Csv: TypeAlias = Annotated[
    Path | None,
    typer.Option("--csv", help="Write the CSV that torch.distributed.pipelining and torchtitan load.", dir_okay=False),
]
Out: TypeAlias = Annotated[
    Path | None, typer.Option(help="Write the whole schedule as JSON; `check` reads it.", dir_okay=False)
]
Effort: TypeAlias = Annotated[float, typer.Option(help="How much longer than usual solvers may try.", min=0.01)]
File: TypeAlias = Annotated[Path, typer.Argument(help="A torch CSV, or the JSON of --out.", dir_okay=False)]
Times: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Of stages: F=1,B=2 or F=1,I=1,W=1 for all alike; F=1:2,B=2:4 for each. A CSV needs them."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """Where to write a schedule to."""

    figure: Path | None = None
    trace: Path | None = None
    csv: Path | None = None
    out: Path | None = None

    def check(self) -> None:
        """Raises InvalidArgumentError where one of them cannot be written; called before a long search."""
        if self.figure is not None:
            check_figure_path(self.figure)
        for option, path in (("trace", self.trace), ("csv", self.csv), ("out", self.out)):
            if path is not None and not path.parent.is_dir():
                raise InvalidArgumentError(
                    f"There is no directory {path.parent}.",
                    hint=f"Make it, or name another --{option}.",
                    field=option,
                )


@app.callback(invoke_without_command=True)
def schedule(
    context: typer.Context,
    *,
    placement: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(SHAPES)}; a JSON file, or FILE:NAME; or a training plan.", metavar="PLACEMENT"),
    ] = None,
    devices: Annotated[int | None, typer.Option(help="Of a named placement. Default: 4.", min=1)] = None,
    micro_batches: Annotated[
        int | None, typer.Option(help="Of one iteration. Default: the training plan's, else 16.", min=1)
    ] = None,
    memory: Memory = None,
    lag: Annotated[
        float, typer.Option(help="Time for communication between dependent tasks on different devices.", min=0)
    ] = 0.0,
    inference: Annotated[bool, typer.Option("--inference", help="Forward tasks only, which hold nothing.")] = False,
    forward: Annotated[float, typer.Option(help="Time of a stage's forward task, of a named placement.")] = 1.0,
    backward: Annotated[float, typer.Option(help="The same backward, I and W together.")] = 3.0,
    shared: Annotated[float, typer.Option(help="The same of tasks on all devices, either way.")] = 1.0,
    chunks: Annotated[int, typer.Option(help="Stages on a device, of interleaved and zigzag.", min=1)] = 2,
    split_backward: Annotated[
        bool, typer.Option("--split-backward", help="Gradients of inputs and weights are tasks of their own.")
    ] = False,
    method: Annotated[
        str,
        typer.Option("--schedule", help=f"tessel and optimal search; published are {', '.join(PUBLISHED)}."),
    ] = "tessel",
    compare: Annotated[bool, typer.Option("--compare", help="Show published schedules beside it.")] = False,
    beside: Annotated[
        list[Path] | None,
        typer.Option(help="A torch CSV of yours to compare with too; several times for several.", dir_okay=False),
    ] = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Go on until period and repetend are proven, as far as --effort goes.")
    ] = False,
    max_repetend: Annotated[int | None, typer.Option(help="Micro-batches of a repetend at most.", min=1)] = None,
    solver: Annotated[
        Solver,
        typer.Option(
            help="Of the repetend: cp-sat, z3 as in Tessel's paper (which needs z3-solver), or a race of both."
        ),
    ] = Solver.CP_SAT,
    effort: Effort = 1.0,
    time_limit: TimeLimit = None,
    figure: Figure = None,
    trace: Trace = None,
    csv: Csv = None,
    out: Out = None,
    anew: Anew = False,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Search a schedule that repeats without idle time, for tasks placed in any way, and extend it to any number of
    micro-batches. Needs no running stack.

    Ctrl-C ends the search with the best so far.
    """
    if context.invoked_subcommand is not None:
        return
    if placement is None:
        raise InvalidArgumentError(
            "There is nothing to schedule.", hint="Give --placement M, a file or a training plan.", field="placement"
        )
    check_method(method)
    options = ShapeOptions(
        forward=forward,
        backward=backward,
        shared=shared,
        chunks=chunks,
        splits_backward=split_backward,
        lag=lag,
        is_training=not inference,
    )
    found, count = find_placement(placement, num_devices=devices, options=options, memory=memory)
    search = search_of(
        found,
        micro_batches or count or _MICRO_BATCHES,
        action=ScheduleAction.COMPARE if compare or beside else ScheduleAction.SEARCH,
        beside=tuple(read_beside(each, found) for each in beside or ()),
        method=method,
        effort=effort,
        proves=prove,
        most_repetend=max_repetend,
        solver=solver,
    )
    files = _Files(figure=figure, trace=trace, csv=csv, out=out)
    _tell(_run(search, files, time_limit_s=time_limit, anew=anew, state_dir=state_dir), files, as_json=as_json)


@app.command()
def check(
    file: File,
    *,
    times: Times = None,
    memory: Memory = None,
    figure: Figure = None,
    trace: Trace = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a schedule of yours with measured times: bubbles, memory, critical path, and what would improve it."""
    search = given_search(file, ScheduleAction.CHECK, times=times, memory=memory)
    files = _Files(figure=figure, trace=trace)
    report = _run(search, files, state_dir=state_dir)
    _tell(report, files, as_json=as_json)
    if report.violations:
        raise typer.Exit(1)


@app.command()
def improve(
    file: File,
    *,
    times: Times = None,
    memory: Memory = None,
    effort: Effort = 1.0,
    time_limit: TimeLimit = None,
    figure: Figure = None,
    trace: Trace = None,
    csv: Csv = None,
    out: Out = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a schedule of yours shorter within the memory; what comes out is never longer."""
    search = given_search(file, ScheduleAction.IMPROVE, times=times, memory=memory, effort=effort)
    files = _Files(figure=figure, trace=trace, csv=csv, out=out)
    _tell(_run(search, files, time_limit_s=time_limit, state_dir=state_dir), files, as_json=as_json)


def _run(
    search: ScheduleSearch,
    files: _Files,
    *,
    time_limit_s: float | None = None,
    anew: bool = False,
    state_dir: Path | None,
) -> ScheduleReport:
    files.check()
    return asyncio.run(search_schedule(search, time_limit_s=time_limit_s, anew=anew, state_dir=state_dir))


def _tell(report: ScheduleReport, files: _Files, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(to_document(report), indent=2))
    else:
        Console().print(schedule_view(report), highlight=False)
    if files.figure is not None:
        draw_schedule(report, files.figure)
    if files.trace is not None:
        files.trace.write_text(chrome_trace(report.schedule, microseconds=_MICROSECONDS))
    if files.out is not None:
        files.out.write_text(json.dumps(to_document(report)))
    if files.csv is not None:
        files.csv.write_text(torch_csv(report.schedule))
