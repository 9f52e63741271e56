"""Alpa's two searches on recorded instances: the optimum, and the processor time, beside the reference's."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.machine import describe_machine
from benchmarks.planner.instances import StageInstance, StrategyInstance, read_instances
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.errors import HeadwayError
from headway.planner.inter.stage_dp import cut_stages
from headway.planner.intra.ilp import solve

REPEATS = 3
_TOLERANCE = 1e-6  # the reference computes in float32

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Attributes:
    found, optimum: in the instance's own unit.
    cpu_s: the least of a few runs, with everything imported and compiled.
    reference_cpu_s: recorded on another machine.
    target_cpu_s: None where there is none.
    """

    search: str
    instance: str
    found: float
    optimum: float
    cpu_s: float
    reference_cpu_s: float | None
    target_cpu_s: float | None

    @property
    def is_met(self) -> bool:
        """The optimum, in the time allowed."""
        is_optimal = self.found <= self.optimum * (1 + _TOLERANCE)
        return is_optimal and (self.target_cpu_s is None or self.cpu_s <= self.target_cpu_s)


def main(
    *,
    cases: Annotated[Path, Option(help="Folder with results.json and the instances that it names.")],
    out: Annotated[Path, Option(help="Where the result goes.")] = RESULTS_DIR / "planner.json",
) -> None:
    """Solve every instance and compare."""
    try:
        stages, strategies = read_instances(cases)
    except HeadwayError as error:
        console.print(f"{error.message} {error.hint}", style="red", markup=False)
        raise typer.Exit(2) from error
    rows = [*map(_stage_row, stages), *map(_strategy_row, strategies)]
    console.print(_table(rows))
    path = write_result(out, {"machine": asdict(describe_machine()), "rows": [asdict(row) for row in rows]})
    console.print(f"written to {path}")


def _stage_row(instance: StageInstance) -> Row:
    """The target is a hundredth of what the reference's fast variant takes."""

    def run() -> float:
        cut = cut_stages(instance.costs, num_devices=instance.num_devices, num_micro_batches=instance.num_micro_batches)
        return float("inf") if cut is None else cut.pipeline_s

    found, cpu_s = _timed(run)
    reference_s = instance.reference_cpu_s
    return Row(
        search="stage cut",
        instance=instance.name,
        found=found,
        optimum=instance.optimum_s,
        cpu_s=cpu_s,
        reference_cpu_s=reference_s,
        target_cpu_s=reference_s / 100 if reference_s and reference_s > 1 else None,
    )


def _strategy_row(instance: StrategyInstance) -> Row:
    found, cpu_s = _timed(lambda: solve(instance.problem).cost_s)
    return Row(
        search="strategies",
        instance=instance.name,
        found=found,
        optimum=instance.optimum,
        cpu_s=cpu_s,
        reference_cpu_s=instance.reference_cpu_s,
        target_cpu_s=1.0 if instance.name.startswith("ilp_n500") else None,
    )


def _timed(run: Callable[[], float]) -> tuple[float, float]:
    """What it gives, and the least processor time of a few runs behind a first one, which compiles."""
    found = run()
    times_s = []
    for _ in range(REPEATS):
        start_s = time.process_time()
        run()
        times_s.append(time.process_time() - start_s)
    return found, min(times_s)


def _table(rows: list[Row]) -> Table:
    table = Table("search", "instance", title="Alpa's searches on recorded instances")
    for heading in ("found", "recorded optimum", "CPU s", "reference, CPU s", "target, CPU s"):
        table.add_column(heading, justify="right")
    for row in rows:
        color = "green" if row.is_met else "red"
        table.add_row(
            row.search,
            row.instance,
            f"{row.found:.6g}",
            f"{row.optimum:.6g}",
            f"[{color}]{row.cpu_s:.4f}[/]",
            "" if row.reference_cpu_s is None else f"{row.reference_cpu_s:g}",
            "" if row.target_cpu_s is None else f"{row.target_cpu_s:g}",
        )
    return table


if __name__ == "__main__":
    typer.run(main)
