"""Collage's figures 2.7, 2.9 and 2.11 on this machine: speed-ups, what each backend adds, and search times."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.backends.drawing import draw
from benchmarks.backends.network import NETWORKS, measure_network
from benchmarks.backends.own_operator import NAME as OWN_OPERATOR
from benchmarks.backends.own_operator import measure_own_operator
from benchmarks.backends.row import CHOICE, Lap, Row, Target, targets
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.units import format_duration

console = Console()


def main(
    *,
    only: Annotated[
        str, Option(help=f"Networks, such as 'bert-32 dcgan'. Default: {' '.join((*NETWORKS, OWN_OPERATOR))}.")
    ] = "",
    threads: Annotated[str, Option(help="Numbers of threads.")] = "1 2",
    time_limit: Annotated[float, Option(help="Seconds of measuring for each search.", min=1)] = 600.0,
    ablation: Annotated[bool, Option(help="Search with the first backend, the first two, and so on.")] = True,
    loose: Annotated[bool, Option(help="Search within an error of 1e-2 too.")] = True,
    state: Annotated[Path, Option(help="Where measurements are kept for the next run.")] = Path("build/backends"),
    out: Annotated[Path, Option(help="Where the result goes; other rows in it stay.")] = RESULTS_DIR / "backends.json",
) -> None:
    """Measure network by network; each row is written as soon as it is there."""
    known = json.loads(out.read_text())["rows"] if out.exists() else []
    rows = {(row.network, row.num_threads): row for row in map(_row, known)}
    names = (*NETWORKS, OWN_OPERATOR)
    wanted = only.split() or names
    if strange := [name for name in wanted if name not in names]:
        raise typer.BadParameter(f"There is no network '{strange[0]}'; there are {', '.join(names)}.")
    for num_threads, name in product([int(count) for count in threads.split()], wanted):
        console.print(f"{name}, threads: {num_threads}")
        try:
            row = _measure(name, num_threads, state.resolve(), time_limit, has_ablation=ablation, is_loose=loose)
        except subprocess.CalledProcessError:
            console.print(f"{name} is left out: a search failed, as it says above")
            continue
        rows[name, num_threads] = row
        _write(out, list(rows.values()))
    console.print(f"written to {out} and {draw(list(rows.values()))}")


def _measure(
    name: str, num_threads: int, state_dir: Path, time_limit_s: float, *, has_ablation: bool, is_loose: bool
) -> Row:
    if name == OWN_OPERATOR:
        return measure_own_operator(num_threads=num_threads, time_limit_s=time_limit_s)
    return measure_network(
        name,
        num_threads=num_threads,
        state_dir=state_dir,
        time_limit_s=time_limit_s,
        has_ablation=has_ablation,
        is_loose=is_loose,
    )


def _row(document: dict[str, Any]) -> Row:
    return Row(**document | {"contest": {name: Lap(**each) for name, each in document["contest"].items()}})


def _write(out: Path, rows: Sequence[Row]) -> None:
    found = targets([row for row in rows if row.network != OWN_OPERATOR])
    write_result(out, {"targets": [asdict(each) for each in found], "rows": [asdict(row) for row in rows]})
    for table in (_contests(rows), _targets(found)):
        console.print(table)


def _contests(rows: Sequence[Row]) -> Table:
    """Median of each finalist, its minimum, and runs that were dropped."""
    names = list(dict.fromkeys(name for row in rows for name in row.contest))
    table = Table("network", "threads", *names, "over the best alone", title="median, minimum, contended runs")
    for row in rows:
        cells = [_cell(row.contest.get(name)) for name in names]
        share = f"{row.against_best:.3f}" if CHOICE in row.contest and row.single else "-"
        table.add_row(row.network, str(row.num_threads), *cells, share)
    return table


def _cell(lap: Lap | None) -> str:
    if lap is None:
        return "-"
    dropped = f", {lap.num_contended} of {lap.num_contended + lap.num_runs}" if lap.num_contended else ""
    return f"{format_duration(lap.seconds)} ({format_duration(lap.least_s)}{dropped})"


def _targets(found: Sequence[Target]) -> Table:
    table = Table("what", "figure", "wanted", "")
    for each in found:
        table.add_row(each.what, f"{each.figure:.3g}", each.wanted, "met" if each.is_met else "missed")
    return table


if __name__ == "__main__":
    typer.run(main)
