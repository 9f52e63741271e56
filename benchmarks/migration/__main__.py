"""Measures how long a stream pauses when its request moves to another worker, and what computing it anew there would
take."""

import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.migration.measurement import Migration, MigrationDriver
from benchmarks.model import DEFAULT_DIRECTORY, MODEL_NAME, make_benchmark_model
from benchmarks.serve.peers import Deployment, launch_headway
from benchmarks.serve.report import RESULTS_DIR, write_result
from benchmarks.serve.server import Server, ServerError, free_port
from headway.core.units import format_bytes, format_duration

MAX_PAUSE_S = 0.2
SEED = 8

console = Console()


def main(
    *,
    context_tokens: Annotated[int, Option(min=64, max=1840, help="Tokens of the request when it moves.")] = 1840,
    others: Annotated[int, Option(min=0, help="Short requests that run beside it all the time.")] = 4,
    repeats: Annotated[int, Option(min=1, help="Moves; each with a prompt of its own.")] = 5,
    model_dir: Annotated[Path, Option(help="Benchmark model, made if absent.")] = DEFAULT_DIRECTORY,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "migration",
) -> None:
    """Start a stack of two workers, and move one request after the other from worker to worker."""
    make_benchmark_model(model_dir)
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        try:
            found = uvloop.run(
                measure(model_dir.resolve(), Path(scratch), context_tokens, others=others, repeats=repeats)
            )
        except ServerError as error:
            console.print(str(error), style="red", markup=False)
            raise typer.Exit(1) from error
    console.print(migration_table(found, others=others))
    document = {"others": others, "migrations": [asdict(migration) for migration in found]}
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")
    if not all(migration.is_equal for migration in found):
        console.print("a stream that moved differs from one that stayed", style="red")
        raise typer.Exit(1)


async def measure(
    model_dir: Path, directory: Path, context_tokens: int, *, others: int, repeats: int
) -> list[Migration]:
    """Measures the moves on a stack that is started and ended here."""
    deployment = Deployment(
        model_name=MODEL_NAME,
        model_dir=model_dir,
        port=free_port(),
        state_dir=directory / "state",
        extra_args=("--no-profile", "--workers", "2"),
    )
    server = Server(
        "two workers", deployment=deployment, launch=launch_headway(deployment), log_path=directory / "server.log"
    )
    try:
        await server.start()
        mover = MigrationDriver(deployment.url, model=MODEL_NAME, state_dir=deployment.state_dir, seed=SEED)
        found = []
        for number in range(repeats):
            found.append(await mover.measure(context_tokens, num_others=others))
            console.print(f"move {number + 1}: paused for {format_duration(found[-1].pause_s)}")
    finally:
        await server.stop()
    return found


def migration_table(found: list[Migration], *, others: int) -> Table:
    """Tables each move, and the medians."""
    first = found[0]
    title = f"{first.num_context_tokens} tokens of context, {others} other requests"
    table = Table("move", title=title)
    for heading in ("blocks", "bytes", "the move takes", "pause", "gap between tokens", "computing it anew"):
        table.add_column(heading, justify="right")
    for number, move in enumerate(found, 1):
        table.add_row(
            str(number),
            str(move.num_blocks),
            format_bytes(move.num_bytes),
            format_duration(move.move_s),
            format_duration(move.pause_s),
            format_duration(move.gap_s),
            format_duration(move.recompute_s),
        )
    pause_s = median(move.pause_s for move in found)
    colour = "green" if pause_s <= MAX_PAUSE_S else "red"
    recompute_s = median(move.recompute_s for move in found)
    table.add_row("median", "", "", "", f"[{colour}]{format_duration(pause_s)}[/]", "", format_duration(recompute_s))
    table.caption = f"target: a pause of at most {format_duration(MAX_PAUSE_S)}"
    return table


if __name__ == "__main__":
    typer.run(main)
