"""Searches for whole training plans of large models: their time and memory, without capture."""

import json
import resource
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.machine import describe_machine
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.capture import CaptureRequest
from headway.core.catalogue import built_in_catalogue
from headway.core.codec import to_document
from headway.core.cost.catalogued import CatalogueCosts, find_device
from headway.core.graph import Graph
from headway.core.precision import Precision
from headway.core.training_cluster_file import parse_training_cluster
from headway.planner.training.plan import make_training_plan
from headway.planner.training.problem import TrainingProblem
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.source import load
from headway.profiler.capture.trace import trace

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Attributes:
    batch: examples of an iteration; all numbers of micro-batches are searched.
    target_s: of the whole search.
    """

    name: str
    source: str
    cluster: str
    batch: int
    precision: Precision
    target_s: float


CASES = (
    Case(
        name="GPT-39B",
        source="zoo:alpa-gpt3-39b",
        cluster="8x8xV100-16",
        batch=1024,
        precision=Precision.FLOAT16,
        target_s=60,
    ),
    Case(
        name="WRN-13B",
        source="zoo:wide-resnet-13b",
        cluster="8x8xV100-16",
        batch=1536,
        precision=Precision.FLOAT32,
        target_s=180,
    ),
    Case(
        name="MoE-70B",
        source="zoo:alpa-moe-70b",
        cluster="8x8xV100-16",
        batch=1024,
        precision=Precision.FLOAT16,
        target_s=180,
    ),
    Case(
        name="Llama-8B",
        source="benchmarks.planner.llama3:llama_8b",
        cluster="8x8xH100",
        batch=128,
        precision=Precision.BFLOAT16,
        target_s=46.8,
    ),
    Case(
        name="GPT-175B",
        source="zoo:gpt3-175b",
        cluster="128x8xA100-80",
        batch=2048,
        precision=Precision.BFLOAT16,
        target_s=600,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Attributes:
    num_operators: of the captured step.
    peak_bytes: of the process, with capture.
    """

    model: str
    cluster: str
    batch: int
    num_operators: int
    num_micro_batches: int
    num_stages: int
    iteration_s: float
    search_s: float
    search_cpu_s: float
    target_s: float
    peak_bytes: int


def main(
    *,
    only: Annotated[str, Option(help="One of the models; all of them where it is left out.")] = "",
    out: Annotated[Path, Option(help="Where the result goes; rows of other models in it stay.")] = RESULTS_DIR
    / "planner-whole.json",
) -> None:
    """Capture each model and search its plan."""
    rows = {row["model"]: Row(**row) for row in json.loads(out.read_text())["rows"]} if out.exists() else {}
    for case in CASES:
        if only in ("", case.name):
            rows[case.name] = _row(case)
    console.print(_table(list(rows.values())))
    path = write_result(out, {"machine": asdict(describe_machine()), "rows": [asdict(row) for row in rows.values()]})
    console.print(f"written to {path}")


def _row(case: Case) -> Row:
    catalogue = built_in_catalogue()
    cluster = parse_training_cluster(case.cluster, catalogue)
    graph = captured(case.name, case.source)
    plan = make_training_plan(
        TrainingProblem(model=case.name, graph=graph, cluster=cluster, batch=case.batch, precision=case.precision),
        [CatalogueCosts(find_device(catalogue, group.device)) for group in cluster.groups],
        nonce="benchmark",
        report=lambda progress: console.print(f"{case.name}: {progress.phase} {progress.best_figure}"),
        should_stop=lambda: False,
        to_document=to_document,
    )
    return Row(
        model=case.name,
        cluster=case.cluster,
        batch=case.batch,
        num_operators=len(graph.operators),
        num_micro_batches=plan.num_micro_batches,
        num_stages=len(plan.stages),
        iteration_s=plan.iteration_s,
        search_s=plan.search_s,
        search_cpu_s=plan.search_cpu_s,
        target_s=case.target_s,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def captured(name: str, source_name: str) -> Graph:
    """The training step of a model, with two examples."""
    source = load(CaptureRequest(source=source_name, batch=2, train=True))
    traced = trace(source.module, source.inputs, train=True, targets=source.targets, report=lambda _: None)
    return build_graph(traced, name=name, is_training=True, batch=2)


def _table(rows: list[Row]) -> Table:
    table = Table("model", "cluster", title="Whole training plans, searched")
    for heading in ("operators", "micro-batches", "stages", "iteration s", "wall s", "CPU s", "target s", "peak GiB"):
        table.add_column(heading, justify="right")
    for row in rows:
        color = "green" if row.search_cpu_s <= row.target_s else "red"
        table.add_row(
            row.model,
            row.cluster,
            str(row.num_operators),
            str(row.num_micro_batches),
            str(row.num_stages),
            f"{row.iteration_s:.4g}",
            f"{row.search_s:.1f}",
            f"[{color}]{row.search_cpu_s:.1f}[/]",
            f"{row.target_s:g}",
            f"{row.peak_bytes / 2**30:.2f}",
        )
    return table


if __name__ == "__main__":
    typer.run(main)
