"""Figures 4.1 to 4.5 of the thesis by the planner's cost model, and whether the chapter's findings come out."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from matplotlib.ticker import NullFormatter
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.figure import panels, save
from benchmarks.parallel.findings import Finding, find
from benchmarks.parallel.node import LLAMA_7B, PYTHON_TABLE_ENTRY_S
from benchmarks.parallel.sweep import (
    BATCHES,
    BREAKDOWN_BATCH,
    BREAKDOWN_LENGTHS,
    CASES,
    DECODE,
    HEADWAY_TABLE_ENTRY_S,
    PREFIX,
    SHOWN_BATCHES,
    TRADE_OFF_LENGTHS,
    Case,
    Point,
    crossover,
    sweep,
)
from benchmarks.parallel.thesis import NUM_RANKS, derived_cp, derived_tp, sent_elements, text_cp, text_tp
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.parallel_config import ParallelConfig

COLOURS = {"dp": "tab:green", "tp": "tab:blue", "cp": "tab:red", "cp, split weights": "tab:orange"}
PARTS = (("compute_s", "compute", 1.0), ("communication_s", "communication", 0.6), ("overhead_s", "overhead", 0.3))

console = Console()


def main(*, name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "figures") -> None:
    """Draw the figures into docs/figures and print what becomes of the findings."""
    volumes = [volume(num_ranks=num_ranks, batch=batch) for num_ranks in NUM_RANKS for batch in BATCHES]
    draw_volume(volumes)
    document: dict[str, Any] = {"volumes": volumes, "cases": {}}
    for case in CASES:
        prefix, decode = sweep(case, PREFIX), sweep(case, DECODE)
        draw_lengths_figure(case, "prefix", prefix)
        draw_lengths_figure(case, "decode", decode)
        draw_trade_off(case, prefix)
        draw_breakdown(case, prefix)
        findings = list(find(prefix, decode))
        crossings = crossings_of(case)
        console.print(findings_table(case, findings), crossings_table(case, crossings))
        document["cases"][case.name] = {
            "prefix": [asdict(point) for point in prefix],
            "decode": [asdict(point) for point in decode],
            "findings": [asdict(finding) for finding in findings],
            "crossovers": crossings,
        }
    console.print(f"written to {write_result(RESULTS_DIR / Path(f'{name}.json'), document)}")


def volume(*, num_ranks: int, batch: int) -> dict[str, float]:
    """Number of elements that leave a rank per layer of Llama-7B."""
    hidden_size, num_heads = LLAMA_7B.hidden_size, LLAMA_7B.num_heads
    return {
        "num_ranks": num_ranks,
        "batch": batch,
        "tp, text": text_tp(batch=batch, hidden_size=hidden_size, num_ranks=num_ranks),
        "cp, text": text_cp(batch=batch, hidden_size=hidden_size, num_heads=num_heads, num_ranks=num_ranks),
        "tp, derived": derived_tp(batch=batch, hidden_size=hidden_size, num_ranks=num_ranks),
        "cp, derived": derived_cp(batch=batch, hidden_size=hidden_size, num_heads=num_heads, num_ranks=num_ranks),
        "tp, sent": sent_elements(LLAMA_7B, ParallelConfig(tp=num_ranks), batch=batch),
        "cp, sent": sent_elements(LLAMA_7B, ParallelConfig(cp=num_ranks), batch=batch),
    }


def draw_volume(volumes: Sequence[dict[str, float]]) -> Path:
    """Draws figure 4.1."""
    figure, axes = panels("batch 32", "4 GPUs")
    for axis, x, rows in (
        (axes[0], "num_ranks", [row for row in volumes if row["batch"] == BATCHES[0]]),
        (axes[1], "batch", [row for row in volumes if row["num_ranks"] == 4]),
    ):
        for layout in ("tp", "cp"):
            for source, style in (("text", ":"), ("derived", "--"), ("sent", "-")):
                key = f"{layout}, {source}"
                values = [row[key] / 1e6 for row in rows]
                axis.plot([row[x] for row in rows], values, style, marker=".", color=COLOURS[layout], label=key)
        axis.set(xlabel="GPUs" if x == "num_ranks" else "batch", ylabel="million elements per GPU, layer", yscale="log")
    axes[0].legend(fontsize=7)
    return save(figure, "parallel-volume")


def draw_lengths_figure(case: Case, kind: str, points: Sequence[Point]) -> Path:
    """Draws figures 4.2 and 4.3."""
    figure, axes = panels(*(f"{case.node.name}, batch {batch}" for batch in SHOWN_BATCHES))
    for axis, batch in zip(axes, SHOWN_BATCHES, strict=True):
        for layout, colour in COLOURS.items():
            own = [point for point in points if point.layout == layout and point.batch == batch]
            lengths, rates = [point.length for point in own], [point.tokens_per_s for point in own]
            axis.plot(lengths, rates, marker=".", color=colour, label=layout)
        axis.set(xlabel=f"mean {kind} length, tokens", ylabel="tokens/s per layer", xscale="log", yscale="log")
    axes[0].legend(fontsize=7)
    return save(figure, f"parallel-{case.name}-{kind}")


def draw_trade_off(case: Case, points: Sequence[Point]) -> Path:
    """Draws figure 4.4: one dot for each batch."""
    figure, axes = panels(*(f"{case.node.name}, {length // 1000}K tokens" for length in TRADE_OFF_LENGTHS))
    for axis, length in zip(axes, TRADE_OFF_LENGTHS, strict=True):
        for layout, colour in COLOURS.items():
            own = [point for point in points if point.layout == layout and point.length == length]
            latencies, rates = [1e3 * point.latency_s for point in own], [point.tokens_per_s for point in own]
            axis.plot(latencies, rates, marker="o", markersize=3, color=colour, label=layout)
        axis.set(xlabel="latency, ms per layer", ylabel="tokens/s per layer", xscale="log")
        axis.xaxis.set_minor_formatter(NullFormatter())
    axes[0].legend(fontsize=7)
    return save(figure, f"parallel-{case.name}-tradeoff")


def draw_breakdown(case: Case, points: Sequence[Point]) -> Path:
    """Draws figure 4.5."""
    figure, axes = panels(*(f"{case.node.name}, {length // 1000}K tokens" for length in BREAKDOWN_LENGTHS))
    for axis, length in zip(axes, BREAKDOWN_LENGTHS, strict=True):
        own = [point for point in points if point.batch == BREAKDOWN_BATCH and point.length == length]
        names, bottoms = [point.layout for point in own], [0.0] * len(own)
        for field, label, alpha in PARTS:
            heights = [1e3 * getattr(point.cost, field) for point in own]
            axis.bar(names, heights, bottom=bottoms, alpha=alpha, color=[COLOURS[each] for each in names], label=label)
            bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
        axis.set(ylabel="ms per layer")
        axis.tick_params(axis="x", labelrotation=20, labelsize=7)
    axes[0].legend(fontsize=7)
    return save(figure, f"parallel-{case.name}-breakdown")


def crossings_of(case: Case) -> list[dict[str, Any]]:
    """The length from which cp is ahead of tp with even lengths: by what tables cost, and of what they are a part."""
    return [
        {
            "tables": tables,
            "of": "one layer" if is_layer else "whole model",
            "batch": batch,
            "length": crossover(case, batch=batch, table_entry_s=entry_s, is_layer=is_layer),
        }
        for tables, entry_s in (("Python lists", PYTHON_TABLE_ENTRY_S), ("Headway's", HEADWAY_TABLE_ENTRY_S))
        for is_layer in (True, False)
        for batch in SHOWN_BATCHES
    ]


def findings_table(case: Case, findings: Sequence[Finding]) -> Table:
    table = Table("the chapter says", "here", "not in (batch x length)", title=case.name)
    for finding in findings:
        num = len(finding.agreeing) + len(finding.differing)
        colour = "green" if not finding.differing else "yellow" if finding.agreeing else "red"
        differing = ", ".join(f"{batch} x {length // 1000}K" for batch, length in finding.differing[:6])
        rest = f" and {len(finding.differing) - 6} more" if len(finding.differing) > 6 else ""
        table.add_row(finding.text, f"[{colour}]in {len(finding.agreeing)} of {num}[/]", differing + rest)
    return table


def crossings_table(case: Case, crossings: Sequence[dict[str, Any]]) -> Table:
    title = f"{case.name}: cp is ahead of tp from"
    table = Table("tables", "of", *(f"batch {batch}" for batch in SHOWN_BATCHES), title=title)
    rows: dict[tuple[str, str], list[str]] = {}
    for crossing in crossings:
        length = crossing["length"]
        rows.setdefault((crossing["tables"], crossing["of"]), []).append("never" if length is None else f"{length}")
    for (tables, of), lengths in rows.items():
        table.add_row(tables, of, *lengths)
    return table


if __name__ == "__main__":
    typer.run(main)
