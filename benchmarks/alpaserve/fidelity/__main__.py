"""Compares simulated and measured attainment over scales of the objectives and patterns of arrival."""

import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from typer import Option

from benchmarks.alpaserve.fidelity.cell import Cell
from benchmarks.alpaserve.fidelity.emulated import measure_emulated
from benchmarks.alpaserve.fidelity.generating import measure_generating
from benchmarks.alpaserve.fidelity.report import document, markdown
from benchmarks.alpaserve.fidelity.sharing import measure_sharing
from benchmarks.alpaserve.fidelity.workers import LAYOUTS, measure_workers
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.errors import HeadwayError
from headway.core.line import QueuePolicy

Measure: TypeAlias = Callable[[Path], list[Cell]]
"""Takes a directory for what it makes."""

PROFILES = Path("../shared/data/alpaserve/v100_profiles.json")


def main(
    *,
    only: Annotated[
        list[str] | None,
        Option(
            help="'two groups', 'one pipeline' (both on workers), 'emulated', 'emulated, least slack first', 'shared' "
            "(emulated, BERTs and a language model) or 'language model'; repeatable."
        ),
    ] = None,
    profiles: Annotated[Path, Option(help="Stage latencies in AlpaServe's format.")] = PROFILES,
    duration_s: Annotated[
        float, Option(min=1.0, help="Of each scale and pattern; on workers it is longer, until --requests came.")
    ] = 25.0,
    requests: Annotated[int, Option(min=1, help="Of each scale and pattern on workers, about.")] = 120,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "alpaserve-fidelity",
) -> None:
    """Send live stacks the same requests as the simulator: emulated V100s, and two workers of this machine, which have
    BERTs and then a language model."""
    settings: Mapping[str, Measure] = {
        "emulated": partial(measure_emulated, profiles.resolve(), duration_s=duration_s),
        "emulated, least slack first": partial(
            measure_emulated, profiles.resolve(), duration_s=duration_s, queue_policy=QueuePolicy.LEAST_SLACK
        ),
        "shared": partial(measure_sharing, profiles.resolve(), duration_s=duration_s),
        **{
            layout: partial(measure_workers, layout, num_requests=requests, duration_s=duration_s) for layout in LAYOUTS
        },
        "language model": partial(measure_generating, num_requests=requests, duration_s=duration_s),
    }
    if unknown := sorted(set(only or ()) - settings.keys()):
        typer.echo(f"There is no setting '{unknown[0]}'; there are {', '.join(settings)}.", err=True)
        raise typer.Exit(2)
    try:
        found = {setting: _measure(settings[setting]) for setting in only or settings}
    except subprocess.CalledProcessError as error:
        raise typer.Exit(1) from error  # it has said why
    except HeadwayError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    for setting, cells in found.items():
        print(f"\n**{setting}**\n\n{markdown(cells)}")
    documents = {setting: document(cells) for setting, cells in found.items()}
    print(f"\nwritten to {write_result(RESULTS_DIR / f'{name}.json', documents)}")


def _measure(measure: Measure) -> list[Cell]:
    with tempfile.TemporaryDirectory(prefix="headway-fidelity-") as directory:
        return measure(Path(directory))


if __name__ == "__main__":
    typer.run(main)
