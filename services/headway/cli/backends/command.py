"""The command `headway plan backends`."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from headway.cli.backends.figure import draw_backends
from headway.cli.backends.searching import BackendsFound, capture, search_backends
from headway.cli.backends.view import backend_plan_view, backends_document, explanation
from headway.cli.figure_file import check_figure_path
from headway.cli.options import AsJson, StateDir
from headway.cli.profile_measure import MeasureOptions
from headway.core.backend import Backend
from headway.core.backend_package import BUILT_IN, FLOAT32, installed_backends
from headway.core.backend_search import MAX_ERROR, BackendSearch
from headway.core.capture import CaptureRequest
from headway.core.errors import InvalidArgumentError


def plan_backends(
    source: Annotated[str, typer.Argument(help="A checkpoint directory, module:factory or zoo:NAME.", metavar="MODEL")],
    *,
    batch: Annotated[int, typer.Option(help="Examples at once.", min=1)] = 1,
    seq: Annotated[int | None, typer.Option(help="Tokens of an example. Default: the model's longest.")] = None,
    backends: Annotated[
        str, typer.Option(help="Offer only these, such as eager,openvino. Default: all that are installed.")
    ] = "",
    max_error: Annotated[
        float,
        typer.Option(help="By how much results may differ from torch's, of the largest. 1e-2 allows bfloat16, int8."),
    ] = MAX_ERROR,
    generations: Annotated[int, typer.Option(help="Of the search over whole placements; 0 for none.", min=0)] = 3,
    population: Annotated[int, typer.Option(help="Placements of a generation.", min=1)] = 6,
    seed: Annotated[int, typer.Option(help="Of the search over whole placements.")] = 0,
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Look no further after so many seconds. Each backend alone, and the final, are timed even so.",
            min=0.01,
        ),
    ] = None,
    worker: Annotated[
        str, typer.Option(help="Measure the kind of hardware that this worker runs on. Default: the newest one's.")
    ] = "",
    share: Annotated[float, typer.Option(help="Of the time of a worker that serves a model.")] = 0.5,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="What to measure where no stack runs.")] = "cpu",
    threads: Annotated[int, typer.Option(help="Threads where no stack runs; 0 for all cores.", min=0)] = 0,
    deadline_s: Annotated[float, typer.Option("--deadline", help="Seconds for the capture.", min=1)] = 600.0,
    figure: Annotated[
        Path | None,
        typer.Option(help="Draw the graph coloured by backend: .svg, .png or .pdf.", dir_okay=False),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say why each group is where it is.")] = False,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Find which backend runs each group of operators fastest, and prove it by measuring.

    Each is checked against torch. What was measured before, with equal versions, is not measured again. Ctrl-C takes
    the best so far.
    """
    if figure is not None:
        check_figure_path(figure)
    search = BackendSearch(
        model=source,
        backends=offered(backends, max_error=max_error, device=device),
        max_error=max_error,
        population=population,
        generations=generations,
        seed=seed,
    )
    options = MeasureOptions(
        worker_id=worker,
        share=share,
        longest_s=60.0,
        deadline_s=deadline_s,
        device=device,
        num_threads=threads,
        state_dir=state_dir,
    )
    request = CaptureRequest(source=source, batch=batch, seq=seq, with_program=True)
    found = asyncio.run(_find(request, search, options, time_limit_s=time_limit))
    if as_json:
        reasons = {"reasons": list(explanation(found.plan))} if explain else {}
        typer.echo(json.dumps(backends_document(found) | reasons, indent=2))
    else:
        Console().print(backend_plan_view(found.plan), highlight=False)
        for sentence in explanation(found.plan) if explain else ():
            Console().print(f"- {sentence}", highlight=False)
        Console().print(f"Timed {found.num_measured} programs for this in {found.measuring_s:.0f} s.", highlight=False)
    if figure is not None:
        draw_backends(found.plan, found.graph, figure)


def offered(names: str, *, max_error: float, device: str = "cpu") -> tuple[Backend, ...]:
    """The installed backends for the device of these names, all for none; bfloat16 and int8 where the error is above
    float32's.

    Raises:
        InvalidArgumentError: one is not installed; says how to get it.
    """
    installed = installed_backends(package for package in BUILT_IN if device in package.devices)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = {backend.name for backend in installed}
    if missing := [name for name in wanted if name not in known]:
        raise InvalidArgumentError(
            f"The backend '{missing[0]}' is not installed, or not for {device}.",
            hint=f"Installed are {', '.join(sorted(known))}; pip install 'headway[backends]' brings all.",
            field="backends",
        )
    return tuple(
        backend
        for backend in installed
        if (not wanted or backend.name in wanted) and (backend.precision == FLOAT32 or max_error > MAX_ERROR)
    )


async def _find(
    request: CaptureRequest, search: BackendSearch, options: MeasureOptions, *, time_limit_s: float | None
) -> BackendsFound:
    graph, program = await capture(request, deadline_s=options.deadline_s)
    return await search_backends(graph, program, search, options, time_limit_s=time_limit_s)
