"""The command `headway profile hardware`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headway.cli.hardware_measure import WorkersWanted, measure_here, measure_workers
from headway.cli.hardware_plot import draw_profile
from headway.cli.hardware_view import hardware_view
from headway.cli.options import AsJson, StateDir
from headway.cli.service_link import has_stack
from headway.core.codec import to_document
from headway.core.errors import InvalidArgumentError, NotFoundError
from headway.core.hardware.calibration import HardwareWanted


def profile_hardware(
    *,
    worker: Annotated[
        str, typer.Option(help="Measure the kind of hardware that this worker runs on. Default: the newest one's.")
    ] = "",
    share: Annotated[
        float,
        typer.Option(help="Of the time of a worker that serves a model. It is left alone while it has requests."),
    ] = 0.5,
    threads: Annotated[
        int | None, typer.Option(help="That compute, where no stack runs. Default: 1.", min=1, show_default=False)
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda, where no stack runs. Default: cpu.", show_default=False)
    ] = None,
    max_ranks: Annotated[
        int,
        typer.Option("--ranks", help="Processes, GPUs or workers to time collectives between; 1 for none.", min=1),
    ] = 2,
    only: Annotated[list[str] | None, typer.Option(help="Only these families, such as matmul or all_reduce.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Measure what is missing, or all again.", show_default=True)
    ] = True,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves into this PNG.", dir_okay=False)] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Measure what hardware does: products by shape, memory, single operators, collectives.

    On idle workers of the running stack, between which collectives are timed; without a stack on this machine. Every
    measurement is kept at once: what was interrupted goes on where it stopped.
    """
    wanted = HardwareWanted(families=tuple(only or ()), max_ranks=max_ranks, fresh=not resume)
    workers = WorkersWanted(worker_id=worker, share=share)
    if has_stack(state_dir):
        _refuse_own(threads=threads, device=device)
        profile = measure_workers(wanted, workers, state_dir=state_dir)
    elif worker:
        raise NotFoundError(
            f"No stack is running, so there is no worker '{worker}'.", hint="Leave out --worker.", field="worker"
        )
    else:
        profile = measure_here(wanted, device=device or "cpu", num_threads=threads or 1, state_dir=state_dir)
    if plot is not None:
        draw_profile(profile, plot)
    if as_json:
        typer.echo(json.dumps(to_document(profile), indent=2))
    else:
        Console().print(hardware_view(profile), highlight=False)


def _refuse_own(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise InvalidArgumentError(
                f"The workers of the running stack have {name} of their own.",
                hint=f"Leave out --{name}, or name another --state-dir: where no stack runs, this machine is measured.",
                field=name,
            )
