"""Searches placements for the cases of the AlpaServe artifact, for mixed models, and for large clusters."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.alpaserve.case import Case, as_document, read_cases, read_profiles
from benchmarks.alpaserve.generated import DAY, QUALITY, SPEED, make_case
from benchmarks.alpaserve.measurement import (
    Search,
    largest_difference,
    paper_search,
    replication,
    search_by_slack,
    search_case,
    throughput,
)
from benchmarks.machine import describe_machine
from benchmarks.serve.report import RESULTS_DIR
from headway.core.errors import HeadwayError
from headway.planner.placement.search import SearchOptions
from headway.planner.placement.simulator import Rules, compile_kernels

DATA = Path("../shared/data/alpaserve")
MOST_DEVICES_OF_PAPER = 64
"""Above, the paper's algorithm takes minutes here."""

console = Console(width=150)


def main(
    *,
    cases: Annotated[Path, Option(help="Cases in the artifact's format; profiles and traces beside it.")] = DATA
    / "cases.json",
    out: Annotated[Path, Option(help="Where the rows are written.")] = RESULTS_DIR / "alpaserve.json",
    generated: Annotated[bool, Option(help="Cases made here instead, of mixed models and of large clusters.")] = False,
    day: Annotated[bool, Option(help="With those made here, also a day's trace of ten million requests.")] = False,
) -> None:
    """Search each case on its training trace, measure on the other; then the speed of search and simulator."""
    try:
        jit_s = compile_kernels(Rules.ARTIFACT) + compile_kernels(Rules(max_batch_size=4))
        table = Table(title=f"SLO attainment, held out ({jit_s:.1f} s of compilation before)")
        for column in (
            "case",
            "searched",
            "held out",
            "s",
            "quick",
            "s",
            "paper",
            "s",
            "least slack first",
            "s",
            "selective",
            "uniform",
            "artifact",
        ):
            table.add_column(column, justify="left" if column == "case" else "right")
        rows = [measure(case, table) for case in (make_cases(cases, day=day) if generated else read_cases(cases))]
    except HeadwayError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from error
    console.print(table)
    out.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": describe_machine(), "jit_s": jit_s, "rows": rows}
    out.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    console.print(f"written to {out}")


def make_cases(cases: Path, *, day: bool) -> Iterator[Case]:
    """Makes the generated cases, with the profiles beside the recorded ones."""
    profiles = read_profiles(cases.parent / "v100_profiles.json")
    for recipe in (*QUALITY, *SPEED, *([DAY] if day else [])):
        yield make_case(recipe, profiles)


def measure(case: Case, table: Table) -> dict[str, Any]:
    """Measures one case: a row of the table and of the result."""
    full, quick = search_case(case, SearchOptions.DEFAULT), search_case(case, SearchOptions.QUICK)
    paper = paper_search(case) if case.num_devices <= MOST_DEVICES_OF_PAPER else None
    by_slack = search_by_slack(case)
    selective, uniform = replication(case)
    best = case.best_recorded
    rate = throughput(case, full.placement)
    table.add_row(
        case.name,
        f"{full.searched:.4f}",
        f"{full.heldout:.4f}",
        f"{full.search_s:.2f}",
        *(cell for each in (quick, paper, by_slack) for cell in _cells(each)),
        f"{selective:.4f}",
        f"{uniform:.4f}",
        f"{best.attainment:.4f}" if best else "",
    )
    console.print(
        f"{case.name}: held out {full.heldout:.4f}; simulator {rate.attainment_only:.1f} million requests/s for the "
        f"attainment, {rate.full_statistics:.1f} with statistics, {rate.batching:.2f} with batches"
    )
    return {
        "case": case.name,
        "num_models": len(case.models),
        "num_devices": case.num_devices,
        "num_train_requests": len(case.train),
        "attainment_searched": full.searched,
        "attainment_heldout": full.heldout,
        "search_s": full.search_s,
        "evaluations": full.evaluations,
        "placement": as_document(full.placement, case.models),
        "quick": _brief(quick),
        "paper": _brief(paper) if paper else None,
        "least_slack_first": _brief(by_slack) | {"placement": as_document(by_slack.placement, case.models)},
        "selective_heldout": selective,
        "uniform_heldout": uniform,
        "artifact": {"policy": best.policy, "attainment_heldout": best.attainment, "search_s": best.search_s}
        if best
        else None,
        "largest_difference_from_recorded": largest_difference(case),
        "simulator_million_requests_per_s": rate,
    }


def _cells(found: Search | None) -> tuple[str, str]:
    return (f"{found.heldout:.4f}", f"{found.search_s:.2f}") if found else ("", "")


def _brief(found: Search) -> dict[str, float]:
    return {"attainment_searched": found.searched, "attainment_heldout": found.heldout, "search_s": found.search_s}


if __name__ == "__main__":
    typer.run(main)
