"""Searches over random cases of mixed sizes, on traces that they have not seen."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import orjson
import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.alpaserve.case import read_profiles
from benchmarks.alpaserve.measurement import run_search
from benchmarks.alpaserve.mixed_cases import NUM_HELD_OUT, MixedCase, make_mixed_case
from benchmarks.machine import describe_machine
from benchmarks.serve.report import RESULTS_DIR
from headway.core.errors import HeadwayError
from headway.planner.placement.search import SearchOptions
from headway.planner.placement.simulator import Rules, attainment, compile_kernels

PROFILES = Path("../shared/data/alpaserve/v100_profiles.json")
SEARCHES = {"default": SearchOptions.DEFAULT, "quick": SearchOptions.QUICK, "paper": SearchOptions.PAPER}
OTHERS = ("quick", "paper")
NUM_CASES = 20

console = Console(width=120)


def main(
    *,
    profiles: Annotated[Path, Option(help="In the artifact's format.")] = PROFILES,
    out: Annotated[Path, Option(help="Where the rows are written.")] = RESULTS_DIR / "alpaserve-mixed.json",
    first_seed: Annotated[int, Option(help="Of the first case; seeds from 1000 on are for tuning.")] = 0,
    num_cases: Annotated[int, Option(min=1, help="Random cases.")] = NUM_CASES,
) -> None:
    """Search random cases of 40 to 80 models of mixed sizes, and measure on eight traces that were not searched."""
    compile_kernels(Rules.ARTIFACT)
    try:
        known = read_profiles(profiles)
    except HeadwayError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from error
    rows: list[dict[str, Any]] = []
    for seed in range(first_seed, first_seed + num_cases):
        rows.append(measure(make_mixed_case(seed, known)))
        console.print(as_line(rows[-1]))
        write(rows, out)  # each time: a run of an hour that is interrupted leaves what it has measured
    console.print(as_table(rows))
    for name in OTHERS:
        more = compare(rows, name)
        console.print(
            f"default against {name}: {100 * more['mean']:+.2f} points on average, {100 * more['worst']:+.2f} at worst"
        )
    console.print(f"written to {out}")


def write(rows: list[dict[str, Any]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "machine": describe_machine(),
        "num_held_out": NUM_HELD_OUT,
        "default_against": {name: compare(rows, name) for name in OTHERS},
        "rows": rows,
    }
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))


def measure(mixed: MixedCase) -> dict[str, Any]:
    """One row: each search on the training trace, and the mean of what its placement attains on the others."""
    case = mixed.case
    row: dict[str, Any] = {"case": case.name, "num_train_requests": len(case.train)}
    for name, options in SEARCHES.items():
        found = run_search(case, options)
        attained = [attainment(case.models, found.placement, trace, Rules.ARTIFACT) for trace in mixed.held_out]
        row[name] = {
            "attainment_searched": found.attainment,
            "attainment_heldout": float(np.mean(attained)),
            "search_s": found.seconds,
        }
    return row


def compare(rows: list[dict[str, Any]], name: str) -> dict[str, float]:
    """How much more the default search attains than another: on average, and where it does worst."""
    more = [row["default"]["attainment_heldout"] - row[name]["attainment_heldout"] for row in rows]
    return {"mean": float(np.mean(more)), "worst": min(more)}


def as_line(row: dict[str, Any]) -> str:
    return f"{row['case']}: " + ", ".join(
        f"{name} {row[name]['attainment_heldout']:.4f} in {row[name]['search_s']:.1f} s" for name in SEARCHES
    )


def as_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"SLO attainment, mean of {NUM_HELD_OUT} held-out traces")
    table.add_column("case")
    for name in SEARCHES:
        for column in (name, "searched", "s"):
            table.add_column(column, justify="right")
    for row in rows:
        found = [row[name] for name in SEARCHES]
        cells = [
            cell
            for each in found
            for cell in (
                f"{each['attainment_heldout']:.4f}",
                f"{each['attainment_searched']:.4f}",
                f"{each['search_s']:.1f}",
            )
        ]
        table.add_row(row["case"], *cells)
    return table


if __name__ == "__main__":
    typer.run(main)
