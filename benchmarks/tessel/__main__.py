"""Tessel: schedules for the paper's placements, for more devices, with less memory, and for random placements."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.machine import describe_machine
from benchmarks.serve.report import RESULTS_DIR, write_result
from benchmarks.tessel.memory import memory_rows
from benchmarks.tessel.optimal import figure_3, figure_9_and_10, figure_11_and_12
from benchmarks.tessel.race import race_rows
from benchmarks.tessel.random_placements import random_rows
from benchmarks.tessel.row import Row, certified
from benchmarks.tessel.table2 import published_rows, scale_rows, table_rows
from benchmarks.tessel.zoo import zoo_rows
from headway.core.errors import HeadwayError
from headway.core.pipeline_shapes import ShapeOptions, named_placement

console = Console()


def main(
    *,
    cases: Annotated[Path, Option(help="A file of placements.")],
    parts: Annotated[
        str, Option(help="Of table2, scale, memory, bubbles, optimal, race, random and zoo, separated by commas.")
    ] = "table2,scale,memory,bubbles,optimal,race,random,zoo",
    only: Annotated[str, Option(help="Of zoo: one model, such as gpt-11b; all of them where it is left out.")] = "",
    out: Annotated[Path, Option(help="Where the result goes.")] = RESULTS_DIR / "tessel.json",
) -> None:
    """Search everything, and show it beside the targets."""
    makers: dict[str, Callable[[], Iterable[Row]]] = {
        "table2": lambda: [*table_rows(cases), *published_rows()],
        "scale": scale_rows,
        "optimal": lambda: [figure_3(), *figure_9_and_10()],
        "bubbles": figure_11_and_12,
        "memory": memory_rows,
        "race": race_rows,
        "random": random_rows,
        "zoo": lambda: zoo_rows(only),
    }
    certified(named_placement("V", 2, ShapeOptions()), 4)  # imports and first use are no part of a search
    rows: list[Row] = []
    path = out
    for part in parts.split(","):
        try:
            for row in makers[part]():
                rows.append(row)
                path = write_result(out, {"machine": asdict(describe_machine()), "rows": [asdict(row) for row in rows]})
                console.print(f"{row.part}, {row.case}: {row.found} ({row.cpu_s:.2f} s)", highlight=False)
        except HeadwayError as error:
            console.print(f"{error.message} {error.hint}", style="red", markup=False)
            raise typer.Exit(2) from error
    console.print(_table(rows))
    console.print(f"written to {path}")


def _table(rows: list[Row]) -> Table:
    table = Table("part", "case", "found", "target", "CPU s", "met")
    for row in rows:
        met = "" if row.is_met is None else "yes" if row.is_met else "no"
        table.add_row(row.part, row.case, row.found, row.target, f"{row.cpu_s:.2f}", met)
    return table


if __name__ == "__main__":
    typer.run(main)
