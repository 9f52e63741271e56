"""How the search for a training plan grows with the cluster: GPT-175B on 64 to 16,384 GPUs."""

import json
import resource
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer import Option

from benchmarks.figure import panels, save
from benchmarks.machine import describe_machine
from benchmarks.planner.whole import captured
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.catalogue import built_in_catalogue
from headway.core.codec import to_document
from headway.core.cost.catalogued import CatalogueCosts, find_device
from headway.core.graph import Graph
from headway.core.precision import Precision
from headway.core.training_cluster_file import parse_training_cluster
from headway.planner.training.plan import make_training_plan
from headway.planner.training.problem import TrainingProblem

MODEL, DEVICE, PER_NODE = "zoo:gpt3-175b", "A100-80", 8
NUM_DEVICES = (64, 256, 1024, 4096, 16384)
BATCH = 2048
LIMIT_S, LIMIT_GIB = 600.0, 8.0

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Attributes:
    cpu_s: of the search, without capture.
    peak_bytes: of the process, with capture and the smaller clusters before.
    """

    num_devices: int
    cpu_s: float
    peak_bytes: int
    iteration_s: float
    num_stages: int


def main(
    *,
    devices: Annotated[
        list[int] | None, Option(help="Number of GPUs; several times for several. Default: 64 to 16,384.")
    ] = None,
    out: Annotated[Path, Option(help="Where the result goes; rows of other clusters in it stay.")] = RESULTS_DIR
    / "planner-growth.json",
) -> None:
    """Search on each cluster, the smallest first, and draw."""
    rows = {row["num_devices"]: Row(**row) for row in json.loads(out.read_text())["rows"]} if out.exists() else {}
    graph = captured("GPT-175B", MODEL)
    for number in sorted(devices or NUM_DEVICES):
        rows[number] = _row(graph, number)
        console.print(rows[number])
        in_order = [rows[number] for number in sorted(rows)]
        write_result(out, {"machine": asdict(describe_machine()), "rows": [asdict(row) for row in in_order]})
    console.print(f"written to {out} and {draw(list(rows.values()))}")


def _row(graph: Graph, num_devices: int) -> Row:
    catalogue = built_in_catalogue()
    cluster = parse_training_cluster(f"{num_devices // PER_NODE}x{PER_NODE}x{DEVICE}", catalogue)
    plan = make_training_plan(
        TrainingProblem(model="GPT-175B", graph=graph, cluster=cluster, batch=BATCH, precision=Precision.BFLOAT16),
        [CatalogueCosts(find_device(catalogue, DEVICE))],
        method="alpa",
        nonce="benchmark",
        report=lambda progress: console.print(f"{num_devices}: {progress.phase} {progress.best_figure}"),
        should_stop=lambda: False,
        to_document=to_document,
    )
    return Row(
        num_devices=num_devices,
        cpu_s=plan.search_cpu_s,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        iteration_s=plan.iteration_s,
        num_stages=len(plan.stages),
    )


def draw(rows: list[Row]) -> Path:
    """Processor time and memory of the search over the number of GPUs, with what is wanted."""
    figure, (seconds, memory) = panels("processor time of the search (s)", "peak memory (GiB)")
    numbers = [row.num_devices for row in sorted(rows, key=lambda row: row.num_devices)]
    by_number = {row.num_devices: row for row in rows}
    seconds.loglog(numbers, [by_number[number].cpu_s for number in numbers], marker="o")
    seconds.axhline(LIMIT_S, color="grey", linestyle="--")
    memory.semilogx(numbers, [by_number[number].peak_bytes / 2**30 for number in numbers], marker="o")
    memory.axhline(LIMIT_GIB, color="grey", linestyle="--")
    for axes in (seconds, memory):
        axes.set_xlabel("GPUs")
        axes.set_xticks(numbers, [f"{number:,}" for number in numbers])
    return save(figure, "planner-growth")


if __name__ == "__main__":
    typer.run(main)
