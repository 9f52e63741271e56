"""Llama-2-7B on 8 GPUs of 36 GB, batch 64: the plan of `auto` beside Galvatron's layout, both by our costs."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.machine import describe_machine
from benchmarks.planner.foretold import captured, foretold
from benchmarks.planner.layout import Layout
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.catalogue import built_in_catalogue
from headway.core.codec import to_document
from headway.core.cost.catalogued import CatalogueCosts, find_device
from headway.core.plan.training import TrainingPlan
from headway.core.precision import Precision
from headway.core.training_cluster import TrainingCluster
from headway.core.training_cluster_file import parse_training_cluster
from headway.planner.training.alpa import Found
from headway.planner.training.plan import make_training_plan
from headway.planner.training.problem import TrainingProblem

MODEL, SEQ, BATCH = "zoo:llama-7b", 2048, 64
CLUSTER, NODE, MEMORY_BYTES = "1x8xA100-80", "DGX A100", 36 * 10**9
NUM_STAGES, DATA, TENSOR = 2, 2, 2
GALVATRON_S, GALVATRON_CPU_S = 3.871, 164.0
"""What Galvatron says of its layout, and what its search took, with figures that it measured of its own machine."""
_NUMBERS = (2, 4, 8, 16, 32)
_ZERO = (0, 1, 2, 3)

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Attributes:
    plan: in words.
    cpu_s: of the search; None for a layout that is given.
    """

    who: str
    plan: str
    iteration_s: float
    cpu_s: float | None


def main(
    *, out: Annotated[Path, typer.Option(help="Where the result goes.")] = RESULTS_DIR / "planner-rivals.json"
) -> None:
    """Search, and price Galvatron's layout."""
    rows = [_searched(), _given()]
    for row in rows:
        console.print(row)
    target_s = GALVATRON_CPU_S / 10
    console.print(f"Galvatron says {GALVATRON_S} s of its own; the search may take {target_s:g} CPU s.")
    document = {"machine": asdict(describe_machine()), "rows": [asdict(row) for row in rows], "target_cpu_s": target_s}
    console.print(f"written to {write_result(out, document)}")


def _searched() -> Row:
    catalogue = built_in_catalogue()
    (nodes,) = parse_training_cluster(CLUSTER, catalogue).groups
    nodes = replace(nodes, memory_bytes=MEMORY_BYTES)
    plan = make_training_plan(
        TrainingProblem(
            model="Llama-2-7B",
            graph=captured(MODEL, SEQ),
            cluster=TrainingCluster(groups=(nodes,)),
            batch=BATCH,
            precision=Precision.BFLOAT16,
        ),
        [CatalogueCosts(find_device(catalogue, nodes.device))],
        nonce="benchmark",
        report=lambda progress: console.print(f"{progress.phase} {progress.best_figure}"),
        should_stop=lambda: False,
        to_document=to_document,
    )
    return Row(who="auto", plan=_words(plan), iteration_s=plan.iteration_s, cpu_s=plan.search_cpu_s)


def _words(plan: TrainingPlan) -> str:
    meshes = ", ".join(str(stage.mesh) for stage in plan.stages)
    again = sum(stage.recomputes for stage in plan.stages)
    return f"{len(plan.stages)} stages ({meshes}), {plan.num_micro_batches} micro-batches, {again} recompute"


def _given() -> Row:
    """The fastest that fits of all ways to fill in what the layout leaves open."""
    found, plan = min(_filled(), key=lambda each: each[0].iteration_s)
    return Row(who="Galvatron's pp2 tp2 dp2", plan=plan, iteration_s=found.iteration_s, cpu_s=None)


def _filled() -> Iterator[tuple[Found, str]]:
    for number, recomputes, zero_stage in product(_NUMBERS, (False, True), _ZERO):
        layout = Layout(
            micro_batch=BATCH // number,
            data=DATA,
            tensor=TENSOR,
            zero_stage=zero_stage,
            recomputes=recomputes,
            precision=Precision.BFLOAT16,
        )
        found = foretold(MODEL, layout, node=NODE, seq=SEQ, num_stages=NUM_STAGES, num_micro_batches=number)
        if all(stage.memory.total_bytes <= MEMORY_BYTES for stage in found.stages):
            again = "recomputing" if recomputes else "keeping activations"
            yield found, f"{number} micro-batches, ZeRO {zero_stage}, {again}"


if __name__ == "__main__":
    typer.run(main)
