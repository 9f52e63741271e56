"""What each of Alpa's two passes gains: the best plan of each smaller space, priced alike (dissertation figures 3.9 to
3.11), and the shapes of plans that the dissertation tells (section 3.8)."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.machine import describe_machine
from benchmarks.planner.whole import captured
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.catalogue import built_in_catalogue
from headway.core.cost.catalogued import CatalogueCosts, find_device
from headway.core.graph import Graph
from headway.core.plan.training import TrainingStage, pipeline_s
from headway.core.precision import Precision
from headway.core.training_cluster_file import parse_training_cluster
from headway.planner.intra.strategies import Splitter
from headway.planner.training.alpa import AlpaSearch, Found
from headway.planner.training.baselines import BASELINES, narrowed
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.shape import shape_of
from headway.planner.training.space import SearchSpace

FULL = "alpa"
NAIVE = "without local all-gather"
INTRA = ("data-parallel", "zero-2", "zero-3", "heuristic", "intra-only")
INTER = ("equal-operator", "equal-layer", "inter-only", "pp-dp", "intra-only")

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Attributes:
    methods: baselines beside the full search.
    micro_batches: numbers of them that are tried.
    num_stages: that plans are wanted with, beside the best.
    """

    name: str
    source: str
    cluster: str
    batch: int
    precision: Precision
    methods: tuple[str, ...] = ()
    micro_batches: tuple[int, ...] = ()
    num_stages: tuple[int, ...] = ()


CASES = (
    Case(
        name="GPT-2.6B on 8",
        source="zoo:alpa-gpt3-2.6b",
        cluster="1x8xV100-16",
        batch=1024,
        precision=Precision.FLOAT16,
        methods=INTRA,
        micro_batches=(32, 64, 128),
    ),
    Case(
        name="MoE-2.4B on 8",
        source="zoo:alpa-moe-2.4b",
        cluster="1x8xV100-16",
        batch=1024,
        precision=Precision.FLOAT16,
        methods=INTRA,
        micro_batches=(16, 32, 64),
    ),
    Case(
        name="WRN-2B on 8",
        source="zoo:wide-resnet-2b",
        cluster="1x8xV100-16",
        batch=1536,
        precision=Precision.FLOAT32,
        methods=INTRA,
        micro_batches=(16, 32, 64),
    ),
    Case(
        name="WRN-1B on 4",
        source="zoo:wide-resnet-1b",
        cluster="1x4xV100-16",
        batch=1536,
        precision=Precision.FLOAT32,
        methods=("intra-only",),
        micro_batches=(16, 32, 64),
    ),
    Case(
        name="WRN-4B on 16",
        source="zoo:wide-resnet-4b",
        cluster="2x8xV100-16",
        batch=1536,
        precision=Precision.FLOAT32,
        methods=("intra-only",),
        micro_batches=(32, 64, 128),
        num_stages=(2, 3, 4),
    ),
    Case(
        name="WRN-6.8B on 32",
        source="zoo:wide-resnet-6.8b",
        cluster="4x8xV100-16",
        batch=1536,
        precision=Precision.FLOAT32,
        methods=INTER,
        micro_batches=(32, 64, 128),
    ),
    Case(
        name="MoE-70B on 64",
        source="zoo:alpa-moe-70b",
        cluster="8x8xV100-32",
        batch=1024,
        precision=Precision.FLOAT16,
        micro_batches=(32, 64, 128),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Attributes:
    iteration_s: None where nothing fits.
    layout: of the plan, in words.
    """

    case: str
    cluster: str
    batch: int
    method: str
    iteration_s: float | None
    layout: str
    cpu_s: float


def main(
    *,
    only: Annotated[str, Option(help="One of the cases; all of them where it is left out.")] = "",
    out: Annotated[Path, Option(help="Where the result goes; rows of other cases in it stay.")] = RESULTS_DIR
    / "planner-ablation.json",
) -> None:
    """Search every space of each case."""
    rows = [Row(**row) for row in json.loads(out.read_text())["rows"]] if out.exists() else []
    for case in CASES:
        if only in ("", case.name):
            rows = [row for row in rows if row.case != case.name]
            rows += case_rows(case, captured(case.name, case.source))
            console.print(_table(rows))
            write_result(out, {"machine": asdict(describe_machine()), "rows": [asdict(row) for row in rows]})
    console.print(f"written to {out}")


def case_rows(case: Case, graph: Graph) -> Iterator[Row]:
    """A row for the full search, for each baseline, and for stages that send what each device of the next needs."""
    catalogue = built_in_catalogue()
    cluster = parse_training_cluster(case.cluster, catalogue)
    problem = TrainingProblem(
        model=case.name,
        graph=graph,
        cluster=cluster,
        batch=case.batch,
        precision=case.precision,
        micro_batches=case.micro_batches,
    )
    costs = [CatalogueCosts(find_device(catalogue, group.device)) for group in cluster.groups]
    spaces = {FULL: problem} | {method: narrowed(problem, BASELINES[method]) for method in case.methods}
    for number in case.num_stages:
        spaces[f"{number} stages"] = replace(problem, space=SearchSpace(num_stages=number))
    for method, own in spaces.items():
        began_s = time.process_time()
        found = AlpaSearch(own, costs).run(report=lambda _: None, should_stop=lambda: False)
        yield _row(case, method, found, cpu_s=time.process_time() - began_s)
        if method == FULL and found is not None and len(found.stages) > 1:
            yield replace(_row(case, NAIVE, found, cpu_s=0.0), iteration_s=_naive_s(found))


def _row(case: Case, method: str, found: Found | None, *, cpu_s: float) -> Row:
    return Row(
        case=case.name,
        cluster=case.cluster,
        batch=case.batch,
        method=method,
        iteration_s=None if found is None else found.iteration_s,
        layout="does not fit" if found is None else str(shape_of(found)),
        cpu_s=cpu_s,
    )


def _naive_s(found: Found) -> float:
    """An iteration where each stage sends every copy that the next one's devices hold, instead of one that they gather
    among themselves."""
    stages = [
        replace(stage, handover_s=stage.handover_s * _copies(found, following))
        for stage, following in zip(found.stages, found.stages[1:], strict=False)
    ]
    stages.append(found.stages[-1])
    return pipeline_s(stages, found.num_micro_batches) + max(stage.once_s for stage in stages)


def _copies(found: Found, stage: TrainingStage) -> float:
    """Of what a stage receives, by bytes: as its first operators read it, for each device."""
    training = found.step.training
    splits = {each.operator: tuple(loop or None for loop in each.splits) for each in stage.shardings}
    left = {each.tensor for each in stage.received}
    whole = held = 0.0
    for operator in (training.operators[name] for name in stage.operators):
        strategy = Splitter(operator, training.tensors, stage.mesh.shape).strategy(splits[operator.name])
        reads = operator.space.reads if operator.space is not None and strategy is not None else ()
        for access, spec in zip(reads, strategy.reads if strategy is not None else (), strict=False):
            if access.tensor in left and not operator.is_backward:
                left.remove(access.tensor)
                num_bytes = training.tensors[access.tensor].num_bytes
                whole += num_bytes
                held += num_bytes * stage.mesh.num_devices / spec.num_shards(stage.mesh.shape)
    return held / whole if whole else 1.0


def _table(rows: list[Row]) -> Table:
    table = Table("case", "method", "plan", title="What each pass gains")
    for heading in ("iteration s", "of the full search's", "CPU s"):
        table.add_column(heading, justify="right")
    full_s = {row.case: row.iteration_s for row in rows if row.method == FULL}
    for row in rows:
        known = full_s.get(row.case)
        share = "" if row.iteration_s is None or known is None else f"{row.iteration_s / known:.2f}"
        seconds = "-" if row.iteration_s is None else f"{row.iteration_s:.4g}"
        table.add_row(row.case, row.method, row.layout, seconds, share, f"{row.cpu_s:.1f}")
    return table


if __name__ == "__main__":
    typer.run(main)
