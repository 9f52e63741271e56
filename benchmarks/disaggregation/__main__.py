"""Compares two workers that do both with one that computes prompts and one that decodes, on the same requests."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.disaggregation.load import Kind, Load, document_of, figures, num_equal, send
from benchmarks.model import DEFAULT_DIRECTORY, MODEL_NAME, make_benchmark_model
from benchmarks.serve.outcome import Outcome
from benchmarks.serve.peers import Deployment, launch_headway
from benchmarks.serve.report import RESULTS_DIR, write_result
from benchmarks.serve.server import Server, ServerError, free_port
from headway.core.units import format_duration

LAYOUTS = {
    "co-located": ("--workers", "2"),
    "disaggregated": ("--prefill-workers", "1", "--decode-workers", "1"),
}
SEED = 13

Outcomes = dict[str, list[Outcome]]
console = Console()


def main(
    *,
    decoding: Annotated[int, Option(min=1, help="Short prompts with long answers, sent at once.")] = 6,
    arriving: Annotated[int, Option(min=1, help="Long prompts with short answers, one after the other.")] = 12,
    gap_s: Annotated[float, Option(min=0.0, help="Between two of them.")] = 1.2,
    repeats: Annotated[int, Option(min=1, help="Runs of each stack, in turns, each with requests of its own.")] = 3,
    model_dir: Annotated[Path, Option(help="Benchmark model, made if absent.")] = DEFAULT_DIRECTORY,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "disaggregation",
) -> None:
    """Start the two stacks one after the other, and send both the same requests."""
    make_benchmark_model(model_dir)
    loads = [
        Load(num_decoding=decoding, num_arriving=arriving, gap_s=gap_s, seed=SEED + number) for number in range(repeats)
    ]
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        try:
            runs = uvloop.run(measure(model_dir.resolve(), Path(scratch), loads))
        except ServerError as error:
            console.print(str(error), style="red", markup=False)
            raise typer.Exit(1) from error
    together = {layout: joined(found) for layout, found in runs.items()}
    pairs = zip(runs["disaggregated"], runs["co-located"], strict=True)
    equal = sum(num_equal(found, expected) for found, expected in pairs)
    total = repeats * (decoding + arriving)
    for kind in ("decoding", "arriving"):
        console.print(table(kind, {layout: figures(found[kind]) for layout, found in together.items()}))
    console.print(f"{equal} of {total} requests have equal tokens", style="green" if equal == total else "red")
    document = {
        "decoding": decoding,
        "arriving": arriving,
        "gap_s": gap_s,
        "repeats": repeats,
        "num_requests": total,
        "num_equal": equal,
        "layouts": {layout: document_of(found) for layout, found in together.items()},
    }
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")
    if equal < total:
        raise typer.Exit(1)


async def measure(model_dir: Path, directory: Path, loads: list[Load]) -> dict[str, list[Outcomes]]:
    """Runs all loads on each layout; returns the runs by layout. Each run has a stack of its own, whose caches are
    cold."""
    runs: dict[str, list[Outcomes]] = {layout: [] for layout in LAYOUTS}
    for number, load in enumerate(loads):
        for layout, flags in LAYOUTS.items():
            deployment = Deployment(
                model_name=MODEL_NAME,
                model_dir=model_dir,
                port=free_port(),
                state_dir=directory / f"{layout}-{number}",
                extra_args=("--no-profile", *flags),
            )
            log_path = directory / f"{layout}-{number}.log"
            server = Server(layout, deployment=deployment, launch=launch_headway(deployment), log_path=log_path)
            try:
                await server.start()
                runs[layout].append(await send(server, load))
            finally:
                await server.stop()
            console.print(f"run {number + 1}, {layout}: done")
    return runs


def joined(runs: list[Outcomes]) -> Outcomes:
    """Joins the outcomes of all runs."""
    return {kind: [outcome for run in runs for outcome in run[kind]] for kind in runs[0]}


def table(title: str, kinds: dict[str, Kind]) -> Table:
    """Tables one kind of request, a column for each layout."""
    made = Table("", title=f"{title} requests")
    for layout in kinds:
        made.add_column(layout, justify="right")
    for name, label in (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("inter_token_s", "between tokens")):
        for quantile in ("p50", "p99"):
            values = [getattr(getattr(kind, name), quantile) for kind in kinds.values()]
            made.add_row(f"{label} {quantile}", *("-" if value is None else format_duration(value) for value in values))
    made.add_row("failures", *(str(kind.num_failures) for kind in kinds.values()))
    return made


if __name__ == "__main__":
    typer.run(main)
