"""GraphPipe and PipeDream on the paper's models: search times beside table 1, and iterations of graphs and chains."""

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
    candle,
    pipeline_problem,
    plain_transformer,
    transformer,
)
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.planner.graphpipe.pipeline import GraphPipeline
from headway.planner.graphpipe.problem import PipelineProblem
from headway.planner.graphpipe.search import (
    graph_partitioners,
    least_time,
    linear_partitioner,
    search_chain,
    search_graph,
)

DEVICES = (4, 8, 16, 32)
GAIN_DEVICES = (8, 32)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GainRow:
    """A graph beside the best chain, by simulated iterations.

    Attributes:
        same_micro_batch: how much faster the graph is with the chain's micro-batch.
    """

    model: str
    num_devices: int
    batch: int
    chain_samples_per_s: float
    chain_depth: int
    chain_micro_batch: int
    graph_samples_per_s: float
    graph_depth: int
    graph_micro_batch: int
    same_micro_batch: float

    @property
    def gain(self) -> float:
        return self.graph_samples_per_s / self.chain_samples_per_s


def main(*, out: Annotated[Path, Option(help="Where the result goes.")] = RESULTS_DIR / "graphpipe.json") -> None:
    """Search every cell of table 1 and of figures 6 and 7."""
    searches = list(track(_searches(), description="searching", console=console))
    result: dict[str, object] = {"searches": [asdict(row) for row in searches]}
    write_result(out, result)
    _show_searches(searches)
    gains = list(track(_gains(), description="comparing", console=console))
    write_result(out, {**result, "gains": [{**asdict(row), "gain": row.gain} for row in gains]})
    _show_gains(gains)


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


def _gains() -> Iterator[GainRow]:
    yield _gain("case study", [plain_transformer(4)] * 2, num_devices=8, batch=64, memory_bytes=2.2e9)
    for model, branches in MODELS.items():
        for num_devices in GAIN_DEVICES:
            batch = BATCH_OF_A_DEVICE[model.split(",")[0]] * num_devices
            yield _gain(
                model, branches(), num_devices=num_devices, batch=batch, memory_bytes=_TIGHT[model.split(",")[0]]
            )
    for num_branches in (2, 4, 8, 16):
        for num_devices in GAIN_DEVICES:
            model = f"CANDLE-Uno, {num_branches} branches (figure 7)"
            yield _gain(
                model, candle(num_branches), num_devices=num_devices, batch=1024 * num_devices, memory_bytes=5.5e9
            )
    for num_devices in GAIN_DEVICES:
        yield _gain(
            "chain (A.3)",
            [transformer(32)],
            num_devices=num_devices,
            batch=16 * num_devices,
            memory_bytes=_TIGHT["MMT"],
        )


_TIGHT = {"MMT": 8e9, "DLRM": 6e9, "CANDLE-Uno": 3e9}
"""Bytes of a device, so that models are near what memory holds, as the paper chose its batches."""


def _gain(model: str, branches: list[list[Work]], *, num_devices: int, batch: int, memory_bytes: float) -> GainRow:
    problem = pipeline_problem(branches, num_devices=num_devices, batch=batch, memory_bytes=memory_bytes)
    graphs = search_graph(problem)
    chains = search_chain(problem)
    assert graphs is not None, f"{model} does not fit {num_devices} devices"
    assert chains, f"no chain of {model} fits {num_devices} devices"
    graph, chain = graphs.fastest, min(chains, key=lambda each: each.iteration_s)
    same = search_graph(problem, [chain.stages[0].micro_batch])
    assert same is not None, "a graph fits where a chain does"
    return GainRow(
        model=model,
        num_devices=num_devices,
        batch=batch,
        chain_samples_per_s=batch / chain.iteration_s,
        chain_depth=chain.depth,
        chain_micro_batch=chain.stages[0].micro_batch,
        graph_samples_per_s=batch / graph.iteration_s,
        graph_depth=graph.depth,
        graph_micro_batch=graph.stages[0].micro_batch,
        same_micro_batch=chain.iteration_s / same.fastest.iteration_s,
    )


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


def _show_gains(gains: list[GainRow]) -> None:
    table = Table("model", "devices", "chain: depth, micro-batch", "graph", "same micro-batch", "gain")
    for gain in gains:
        table.add_row(
            gain.model,
            str(gain.num_devices),
            f"{gain.chain_depth}, {gain.chain_micro_batch}",
            f"{gain.graph_depth}, {gain.graph_micro_batch}",
            f"{gain.same_micro_batch:.2f}x",
            f"{gain.gain:.2f}x",
        )
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
