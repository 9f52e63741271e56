"""How much sooner requests with a shared prefix are answered when the prefix cache is on."""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.model import DEFAULT_DIRECTORY, MODEL_NAME, make_benchmark_model
from benchmarks.prefix.measurement import Measurement, alternate
from benchmarks.serve.peers import Deployment, launch_headway
from benchmarks.serve.report import RESULTS_DIR, write_result
from benchmarks.serve.server import Server, ServerError, free_port
from benchmarks.serve.workload import WorkloadSpec
from headway.core.units import format_duration

MAX_RATIO = 1 / 3
SEED = 5

console = Console()


def main(
    *,
    requests: Annotated[int, Option(min=2, help="Requests, all at once.")] = 32,
    prefix_tokens: Annotated[int, Option(min=1, help="Tokens that all prompts start with.")] = 512,
    tail_tokens: Annotated[int, Option(min=4, help="Prompt tokens of each request behind them.")] = 32,
    output_tokens: Annotated[int, Option(min=1, help="Output tokens of each request.")] = 32,
    repeats: Annotated[int, Option(min=1, help="Runs with the cache, and without; prefixes differ.")] = 3,
    model_dir: Annotated[Path, Option(help="Benchmark model, made if absent.")] = DEFAULT_DIRECTORY,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "prefix",
) -> None:
    """Start one stack with the prefix cache and one without, and send them the same bursts in turns."""
    make_benchmark_model(model_dir)
    spec = WorkloadSpec(
        num_requests=requests,
        seed=SEED,
        prompt_mean=tail_tokens,
        prompt_sigma=0.0,
        output_mean=output_tokens,
        shared_prefix_tokens=prefix_tokens,
    )
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        with_cache = stack(model_dir, Path(scratch) / "on")
        without = stack(model_dir, Path(scratch) / "off", "--no-prefix-cache")
        try:
            found = uvloop.run(alternate(with_cache, without, spec, repeats=repeats, progress=console.print))
        except ServerError as error:
            console.print(str(error), style="red", markup=False)
            raise typer.Exit(1) from error
    console.print(prefix_table(found, spec))
    document = {"workload": asdict(spec), **asdict(found), "ratio": found.ratio}
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")
    if found.num_failures:
        console.print(f"{found.num_failures} requests failed", style="red")
        raise typer.Exit(1)


def stack(model_dir: Path, directory: Path, *options: str) -> Server:
    """Headway on a free port, not started yet; it times no steps meanwhile, because two stacks share the machine."""
    directory.mkdir()
    deployment = Deployment(
        model_name=MODEL_NAME,
        model_dir=model_dir.resolve(),
        port=free_port(),
        state_dir=directory / "state",
        extra_args=("--no-profile", *options),
    )
    return Server(
        f"prefix cache {directory.name}",
        deployment=deployment,
        launch=launch_headway(deployment),
        log_path=directory / "server.log",
    )


def prefix_table(found: Measurement, spec: WorkloadSpec) -> Table:
    """The time of each burst, with the cache and without."""
    table = Table("time of the burst", title=spec.title)
    for heading in ("cache on", "cache off", "on / off"):
        table.add_column(heading, justify="right")
    for run, (on_s, off_s) in enumerate(zip(found.on_s, found.off_s, strict=True), 1):
        table.add_row(f"run {run}", format_duration(on_s), format_duration(off_s), f"{on_s / off_s:.2f}")
    colour = "green" if found.ratio <= MAX_RATIO else "red"
    table.add_row("median", "", "", f"[{colour}]{found.ratio:.2f}[/]")
    table.caption = f"target: at most {MAX_RATIO:.2f}"
    return table


if __name__ == "__main__":
    typer.run(main)
