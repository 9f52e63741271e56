"""Every model of the zoo in full size, captured by the command: how long that takes, and in how much memory."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from typer import Option

from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.units import format_bytes, format_duration
from headway.profiler.zoo.model import ZooModel
from headway.profiler.zoo.registry import models

MEMORY_TARGET_BYTES, SECONDS_TARGET = 24 * 1024**3, 180.0

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """The cost of capturing one model.

    Attributes:
        seconds: of the whole command, which starts Python and torch.
        peak_bytes: the largest resident set of a process of it.
        error: of the parameters against the source's figure; None where it has none.
    """

    name: str
    is_training: bool
    seconds: float
    peak_bytes: int
    parameters: int
    flops: int
    operators: int
    unknown_operators: int
    error: float | None


def main(*, name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "captures") -> None:
    """Capture them one after the other, with their backward pass where their source trains them."""
    rows = [capture(model) for model in track(models(), console=console, description="capturing")]
    table = Table("model", "backward", "parameters", "operators", "time", "memory")
    for row in rows:
        table.add_row(
            row.name,
            "yes" if row.is_training else "no",
            f"{row.parameters / 1e9:.2f}B",
            str(row.operators),
            format_duration(row.seconds),
            format_bytes(row.peak_bytes),
        )
    console.print(table)
    slowest, largest = max(rows, key=lambda row: row.seconds), max(rows, key=lambda row: row.peak_bytes)
    console.print(
        f"{len(rows)} models; slowest {slowest.name} {format_duration(slowest.seconds)} (target "
        f"{format_duration(SECONDS_TARGET)}), largest {largest.name} {format_bytes(largest.peak_bytes)} (target "
        f"{format_bytes(MEMORY_TARGET_BYTES)}), {sum(row.unknown_operators for row in rows)} unknown operators"
    )
    path = write_result(RESULTS_DIR / f"{name}.json", {"models": [asdict(row) for row in rows]})
    console.print(f"written to {path}")


def capture(model: ZooModel) -> Captured:
    """Captures a model by the command; RuntimeError, with what the command says, where it fails."""
    command = [sys.executable, "-m", "headway.cli", "profile", "model", f"zoo:{model.name}", "--capture-only", "--json"]
    command += ["--train"] * model.is_trained_in_paper
    started_s = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started_s
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}.")
    graph, said = json.loads(output), model.expected_parameters
    return Captured(
        name=model.name,
        is_training=graph["is_training"],
        seconds=seconds,
        peak_bytes=usage.ru_maxrss * 1024,
        parameters=graph["parameters"],
        flops=graph["flops"],
        operators=graph["operators"],
        unknown_operators=sum(graph["unknown_operators"].values()),
        error=graph["parameters"] / said - 1 if said else None,
    )


if __name__ == "__main__":
    typer.run(main)
