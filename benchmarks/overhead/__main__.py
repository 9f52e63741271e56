"""How much gateway and router add to the time to first token, against the worker's own gRPC endpoint."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
import uvloop
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.model import DEFAULT_DIRECTORY, make_benchmark_model
from benchmarks.overhead.measurement import Measurement, Shape, measure
from benchmarks.serve.report import RESULTS_DIR, write_result
from benchmarks.serve.server import ServerError
from headway.core.units import format_duration

MAX_ADDED_P50_S = 0.003
MAX_ADDED_P99_S = 0.010

console = Console()


def main(
    *,
    requests: Annotated[int, Option(min=20, help="Requests in all, half of them each way.")] = 4000,
    rate: Annotated[float | None, Option(min=0.1, help="Requests per second; default: half of capacity.")] = None,
    prompt_tokens: Annotated[int, Option(min=4, help="Prompt tokens of each request.")] = 64,
    output_tokens: Annotated[int, Option(min=1, help="Output tokens of each request.")] = 32,
    model_dir: Annotated[Path, Option(help="Benchmark model, made if absent.")] = DEFAULT_DIRECTORY,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "overhead",
) -> None:
    """Start Headway, send every other request around its gateway and router, and compare."""
    make_benchmark_model(model_dir)
    shape = Shape(num_prompt_tokens=prompt_tokens, num_output_tokens=output_tokens)
    work = measure(model_dir.resolve(), shape, num_requests=requests, rate_per_s=rate, progress=console.print)
    try:
        measurement = uvloop.run(work)
    except ServerError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from error
    console.print(overhead_table(measurement))
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', asdict(measurement))}")
    if measurement.overhead.num_failures:
        console.print(f"{measurement.overhead.num_failures} requests failed", style="red")
        raise typer.Exit(1)


def overhead_table(measurement: Measurement) -> Table:
    """TTFT by each way, what the gateway adds, and what it may add."""
    found = measurement.overhead
    table = Table("TTFT", title=f"gateway and router at {measurement.rate_per_s:.1f} requests/s")
    for heading in ("through the gateway", "worker itself", "added", "95 % interval", "limit"):
        table.add_column(heading, justify="right")
    for percentile, added, limit_s in ((50, found.added_p50, MAX_ADDED_P50_S), (99, found.added_p99, MAX_ADDED_P99_S)):
        table.add_row(
            f"p{percentile}",
            format_duration(float(np.percentile(found.through_s, percentile))),
            format_duration(float(np.percentile(found.direct_s, percentile))),
            f"[{'green' if added.value_s < limit_s else 'red'}]{1e3 * added.value_s:.2f} ms[/]",
            f"{1e3 * added.low_s:.2f} to {1e3 * added.high_s:.2f} ms",
            format_duration(limit_s),
        )
    return table


if __name__ == "__main__":
    typer.run(main)
