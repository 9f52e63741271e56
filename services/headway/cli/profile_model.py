"""The command `headway profile model`."""

import asyncio
import json
from contextlib import aclosing
from typing import Annotated, Any, Literal

import typer
from rich.console import Console, Group, RenderableType

from headway.cli.graph_view import graph_document, graph_view
from headway.cli.hardware_costs import costs_on
from headway.cli.model_profile_view import model_profile_document, model_profile_view
from headway.cli.options import AsJson, CatalogueFile, StateDir
from headway.cli.profile_measure import MeasureOptions, measure_model, require_stack, start_measuring
from headway.cli.time_view import time_view
from headway.core.capture import CaptureProgress, CaptureRequest
from headway.core.codec import from_document, to_document
from headway.core.cost.costs import graph_time
from headway.core.graph import Graph
from headway.core.program import Program
from headway.rpc.child import call_child

_MAX_ROWS = 20


def profile_model(
    source: Annotated[str, typer.Argument(help="A checkpoint directory, module:factory or zoo:NAME.", metavar="MODEL")],
    *,
    batch: Annotated[int, typer.Option(help="Examples at once.")] = 1,
    seq: Annotated[int | None, typer.Option(help="Tokens of an example. Default: the model's longest.")] = None,
    train: Annotated[bool, typer.Option("--train", help="The backward pass too, and Adam's step.")] = False,
    capture_only: Annotated[bool, typer.Option("--capture-only", help="Measure nothing.")] = False,
    hardware: Annotated[
        str | None,
        typer.Option(
            help="Predict times instead: on a device of the catalogue, or here as `profile hardware` found it."
        ),
    ] = None,
    catalogue: CatalogueFile = None,
    stages: Annotated[int, typer.Option(help="Measure so many runs of layers as one each.", min=0)] = 0,
    worker: Annotated[
        str, typer.Option(help="Measure the kind of hardware that this worker runs on. Default: the newest one's.")
    ] = "",
    share: Annotated[
        float,
        typer.Option(help="Of the time of a worker that serves a model. It is left alone while it has requests."),
    ] = 0.5,
    longest_s: Annotated[
        float, typer.Option("--longest", help="Estimate what would run longer than so many seconds.")
    ] = 10.0,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="What to measure where no stack runs.")] = "cpu",
    threads: Annotated[int, typer.Option(help="Threads where no stack runs; 0 for all cores.", min=0)] = 0,
    detach: Annotated[bool, typer.Option("--detach", help="Leave the measuring to the stack.")] = False,
    state_dir: StateDir = None,
    as_json: AsJson = False,
    operators: Annotated[bool, typer.Option("--operators", help="List all operators, also in the JSON.")] = False,
    deadline_s: Annotated[float, typer.Option("--deadline", help="Seconds after which to give up.", min=1)] = 600.0,
) -> None:
    """Show what a model consists of, and measure what its operators, layers and stages take.

    Needs no weights. Measured on the workers of the running stack, else in a worker of this command's own. What was
    measured before, on equal hardware and with equal versions, is not measured again.
    """
    options = MeasureOptions(
        worker_id=worker,
        share=share,
        longest_s=longest_s,
        deadline_s=deadline_s,
        num_stages=stages,
        device=device,
        num_threads=threads,
        state_dir=state_dir,
    )
    if detach:
        require_stack(options)
    costs = None if hardware is None else costs_on(hardware, catalogue=catalogue, state_dir=state_dir)
    wants_program = not capture_only and costs is None
    request = CaptureRequest(source=source, batch=batch, seq=seq, train=train, with_program=wants_program)
    graph, program = asyncio.run(_capture(request, deadline_s=deadline_s))
    num_rows = None if operators else _MAX_ROWS
    if program is None:
        time = None if costs is None else graph_time(graph, costs)
        views = [graph_view(graph, num_operators=num_rows)]
        if time is not None:
            views.append(time_view(graph, time, num_operators=num_rows))
        _show(graph_document(graph, with_operators=operators, time=time), Group(*views), as_json)
        return
    if detach:
        job = asyncio.run(start_measuring(graph, program, options))
        typer.echo(
            json.dumps(to_document(job), indent=2) if as_json else f"Measuring; `headway profile show {job.job_id}`"
        )
        return
    profile = asyncio.run(measure_model(graph, program, options))
    _show(model_profile_document(profile), model_profile_view(profile, num_operators=num_rows), as_json)


def _show(document: dict[str, Any], view: RenderableType, as_json: bool) -> None:  # noqa: FBT001
    if as_json:
        typer.echo(json.dumps(document, indent=2))
    else:
        Console().print(view, highlight=False)


async def _capture(request: CaptureRequest, *, deadline_s: float) -> tuple[Graph, Program | None]:
    """Captures the model in a child process, which starts in this directory so that it finds `module:factory`."""
    graph, program = None, None
    answers = call_child("headway.profiler.capture", to_document(request), deadline_s=deadline_s)
    with Console(stderr=True).status("starting") as status:
        async with aclosing(answers):
            async for answer in answers:
                progress = from_document(CaptureProgress, answer)
                graph, program = progress.graph, progress.program
                status.update(progress.phase)
    assert graph is not None, "a capture that ends well has a graph"
    return graph, program
