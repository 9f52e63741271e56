"""GraphPipe and PipeDream on the paper's models: search times beside table 1."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from typer import Option

from benchmarks.graphpipe.models import (
    BATCH_OF_A_DEVICE,
    MODELS,
    Work,
    pipeline_problem,
)
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.planner.graphpipe.pipeline import GraphPipeline
from headway.planner.graphpipe.problem import PipelineProblem
from headway.planner.graphpipe.search import (
    graph_partitioners,
    least_time,
    linear_partitioner,
)

DEVICES = (4, 8, 16, 32)
REPEATS = 2
PAPER_S = {
    "MMT": ((0.12, 0.76, 3.00, 10.11), (2.57, 11.9, 44.3, 151.0)),
    "DLRM": ((0.33, 2.73, 13.28, 54.6), (6.39, 31.3, 131.0, 505.0)),
    "CANDLE-Uno": ((0.19, 1.43, 6.14, 22.37), (3.84, 17.0, 66.10, 234.0)),
}
"""Table 1: GraphPipe's and PipeDream's seconds on an Apple M1 Max."""

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRow:
    """Attributes:
    cpu_s: the least of a few runs, with everything imported and compiled.
    time_per_sample_s: of the slowest stage: what the search minimises.
    target_cpu_s: a tenth of the paper's.
    """

    search: str
    model: str
    num_devices: int
    cpu_s: float
    target_cpu_s: float
    time_per_sample_s: float
    depth: int

    @property
    def is_met(self) -> bool:
        return self.cpu_s <= self.target_cpu_s


def main(*, out: Annotated[Path, Option(help="Where the result goes.")] = RESULTS_DIR / "graphpipe.json") -> None:
    """Search every cell of table 1."""
    searches = list(track(_searches(), description="searching", console=console))
    write_result(out, {"searches": [asdict(row) for row in searches]})
    _show_searches(searches)


def _searches() -> Iterator[SearchRow]:
    _timed(lambda: _least(MODELS["CANDLE-Uno, 7 branches"](), 4, 64))  # compiles
    for model, branches in MODELS.items():
        family = model.split(",")[0]
        for column, num_devices in enumerate(DEVICES):
            problem = pipeline_problem(
                branches(), num_devices=num_devices, batch=BATCH_OF_A_DEVICE[family] * num_devices
            )
            for number, (name, search) in enumerate((("GraphPipe", _graph), ("PipeDream", _chain))):
                cpu_s, found = _timed(partial(search, problem))
                assert found is not None, f"{model} does not fit {num_devices} devices"
                yield SearchRow(
                    search=name,
                    model=model,
                    num_devices=num_devices,
                    cpu_s=cpu_s,
                    target_cpu_s=PAPER_S[family][number][column] / 10,
                    time_per_sample_s=found.time_per_sample,
                    depth=found.depth,
                )


def _least(branches: list[list[Work]], num_devices: int, batch: int) -> GraphPipeline | None:
    return _graph(pipeline_problem(branches, num_devices=num_devices, batch=batch))


def _graph(problem: PipelineProblem) -> GraphPipeline | None:
    _, partitioners = graph_partitioners(problem)
    return least_time(problem, partitioners)


def _chain(problem: PipelineProblem) -> GraphPipeline | None:
    return least_time(problem, [linear_partitioner(problem)])


def _timed(search: Callable[[], GraphPipeline | None]) -> tuple[float, GraphPipeline | None]:
    best_s, found = float("inf"), None
    for _ in range(REPEATS):
        began_s = time.process_time()
        found = search()
        best_s = min(best_s, time.process_time() - began_s)
    return best_s, found


def _show_searches(searches: list[SearchRow]) -> None:
    table = Table("search", "model", "devices", "CPU s", "target", "s a sample", "depth", "met")
    for row in searches:
        table.add_row(
            row.search,
            row.model,
            str(row.num_devices),
            f"{row.cpu_s:.3f}",
            f"{row.target_cpu_s:.3f}",
            f"{row.time_per_sample_s:.4g}",
            str(row.depth),
            "yes" if row.is_met else "no",
        )
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
