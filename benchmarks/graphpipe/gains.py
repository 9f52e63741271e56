"""What graphs of stages gain over chains: the case study, figures 6 and 7, and A.3's chain, by simulated iterations."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.figure import FIGURES_DIR, panels, save
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
from headway.planner.graphpipe.piper import search_downsets
from headway.planner.graphpipe.search import fastest_mixed, search_chain, search_graph

DEVICES = (4, 8, 16, 32)
BRANCHES = (2, 4, 8, 16)
BRANCH_DEVICES = (8, 32)
TIGHT = {"MMT": 8e9, "DLRM": 6e9, "CANDLE-Uno": 3e9}
"""Bytes of a device, so that models are near what memory holds, as the paper chose its batches."""
CASE_BYTES, BRANCHES_BYTES = 2.2e9, 5.5e9

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model on a cluster.

    Attributes:
        figure: of the paper that it belongs to.
        is_joined: whether branches are concatenated at their end.
    """

    figure: str
    model: str
    branches: Sequence[Sequence[Work]] = field(repr=False)
    num_devices: int
    batch: int
    memory_bytes: float
    is_joined: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GainRow:
    """A graph beside the best chain.

    Attributes:
        same_micro_batch: how much faster the graph is with the chain's micro-batch: the paper's "Parallel".
    refined_gain: how much faster the graph is beyond equation 1; see `GraphSearch.refined`.
    mixed_chain_gain: how much faster the chain is with micro-batches of its own sizes in some stages.
        piper_samples_per_s: of Piper's chain, where it was searched.
    """

    figure: str
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
    refined_gain: float
    mixed_chain_gain: float
    piper_samples_per_s: float | None = None

    @property
    def gain(self) -> float:
        return self.graph_samples_per_s / self.chain_samples_per_s


def main(
    *,
    out: Annotated[Path, Option(help="Where the result goes.")] = RESULTS_DIR / "graphpipe-gains.json",
    figures: Annotated[Path, Option(help="Where the figures go.")] = FIGURES_DIR,
    only: Annotated[str, Option(help="Cases whose figure contains this.")] = "",
) -> None:
    """Search graph and chain of every case."""
    rows: list[GainRow] = []
    for case in _cases():
        if only in case.figure:
            rows.append(gain_of(case))
            console.print(f"{case.figure}: {case.model} on {case.num_devices}: {rows[-1].gain:.3f}x", highlight=False)
            write_result(out, {"gains": [{**asdict(row), "gain": row.gain} for row in rows]})
    _show(rows)
    if not only:
        _draw(rows, figures)


def _cases() -> Iterator[Case]:
    branches = [plain_transformer(4)] * 2
    for is_joined, model in ((True, "two branches"), (False, "two branches that end apart")):
        yield Case(
            figure="case study",
            model=model,
            branches=branches,
            num_devices=8,
            batch=64,
            memory_bytes=CASE_BYTES,
            is_joined=is_joined,
        )
    for num_branches in BRANCHES:
        for num_devices in BRANCH_DEVICES:
            yield Case(
                figure="figure 7",
                model=f"CANDLE-Uno, {num_branches} branches",
                branches=candle(num_branches),
                num_devices=num_devices,
                batch=1024 * num_devices,
                memory_bytes=BRANCHES_BYTES,
            )
    for num_devices in DEVICES:
        yield Case(
            figure="A.3",
            model="chain",
            branches=[transformer(32)],
            num_devices=num_devices,
            batch=16 * num_devices,
            memory_bytes=TIGHT["MMT"],
        )
        for model, make in MODELS.items():
            family = model.split(",")[0]
            batch = BATCH_OF_A_DEVICE[family] * num_devices
            yield Case(
                figure="figure 6",
                model=model,
                branches=make(),
                num_devices=num_devices,
                batch=batch,
                memory_bytes=TIGHT[family],
            )


def gain_of(case: Case) -> GainRow:
    """Searches both."""
    problem = pipeline_problem(
        case.branches,
        num_devices=case.num_devices,
        batch=case.batch,
        memory_bytes=case.memory_bytes,
        is_joined=case.is_joined,
    )
    graphs, chains = search_graph(problem), search_chain(problem)
    assert graphs is not None, f"{case.model} does not fit {case.num_devices} devices"
    assert chains, f"no chain of {case.model} fits {case.num_devices} devices"
    graph, chain = graphs.fastest, min(chains, key=lambda each: each.iteration_s)
    micro_batch = chain.stages[0].micro_batch
    same = next(each for each in graphs.of_sizes if each.stages[0].micro_batch == micro_batch)
    piper = search_downsets(problem, micro_batch) if case.figure == "A.3" else None
    return GainRow(
        figure=case.figure,
        model=case.model,
        num_devices=case.num_devices,
        batch=case.batch,
        chain_samples_per_s=case.batch / chain.iteration_s,
        chain_depth=chain.depth,
        chain_micro_batch=micro_batch,
        graph_samples_per_s=case.batch / graph.iteration_s,
        graph_depth=graph.depth,
        graph_micro_batch=graph.stages[0].micro_batch,
        same_micro_batch=chain.iteration_s / same.iteration_s,
        refined_gain=chain.iteration_s / graphs.refined.iteration_s,
        mixed_chain_gain=chain.iteration_s / fastest_mixed(chains).iteration_s,
        piper_samples_per_s=None if piper is None else case.batch / piper.iteration_s,
    )


def _show(rows: Sequence[GainRow]) -> None:
    table = Table("", "model", "devices", "chain: depth, micro-batch", "graph", "same micro-batch", "gain")
    for name in ("refined", "chain with own sizes", "Piper"):
        table.add_column(name)
    for row in rows:
        table.add_row(
            row.figure,
            row.model,
            str(row.num_devices),
            f"{row.chain_depth}, {row.chain_micro_batch}",
            f"{row.graph_depth}, {row.graph_micro_batch}",
            f"{row.same_micro_batch:.3f}x",
            f"{row.gain:.3f}x",
            f"{row.refined_gain:.3f}x",
            f"{row.mixed_chain_gain:.3f}x",
            "" if row.piper_samples_per_s is None else f"{row.piper_samples_per_s / row.chain_samples_per_s:.3f}x",
        )
    console.print(table)


def _draw(rows: Sequence[GainRow], directory: Path) -> None:
    figure, (models, branches) = panels("GraphPipe over PipeDream, 4 to 32 devices", "by branches (CANDLE-Uno)")
    for model in MODELS:
        own = [row for row in rows if row.figure == "figure 6" and row.model == model]
        models.plot([row.num_devices for row in own], [row.gain for row in own], marker="o", label=model)
    models.set_xscale("log", base=2)
    models.set_xlabel("devices")
    for num_devices in BRANCH_DEVICES:
        own = [row for row in rows if row.figure == "figure 7" and row.num_devices == num_devices]
        branches.plot(BRANCHES, [row.gain for row in own], marker="o", label=f"{num_devices} devices")
    branches.set_xscale("log", base=2)
    branches.set_xlabel("branches")
    for axes in (models, branches):
        axes.set_ylabel("times as many samples/s")
        axes.legend(fontsize=7)
    save(figure, "graphpipe-gains", directory=directory)


if __name__ == "__main__":
    typer.run(main)
