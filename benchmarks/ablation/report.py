"""Tables and figures of the ablations."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from rich.table import Table

from benchmarks.ablation.service import Finding
from benchmarks.engine.dataset import DATASETS
from benchmarks.engine.simulation import Service
from benchmarks.figure import panels, save
from headway.core.units import format_duration


def block_size_table(findings: Sequence[Finding], *, contiguous_s: float) -> Table:
    """Tables the attention of a step, also against one block for the whole context, and latency at fixed rates."""
    table = Table("block size", title="block sizes: attention of a step, and normalised latency at a fixed rate")
    for heading in ("attention", "over contiguous", *(dataset.name for dataset in DATASETS)):
        table.add_column(heading, justify="right")
    for found in findings:
        attention_s = found.costs.attention_s
        table.add_row(
            str(found.costs.block_size),
            format_duration(attention_s),
            f"{100 * (attention_s / contiguous_s - 1):+.0f} %",
            *(format_duration(found.latency_s[dataset.name]) for dataset in DATASETS),
        )
    return table


def preemption_table(findings: Sequence[Finding], *, swapped_tokens: int) -> Table:
    """Tables what a preempted sequence costs by either way, and what that does to latency."""
    table = Table("block size", title=f"giving way with {swapped_tokens} tokens, and sharegpt in a small pool")
    for heading in ("swap out", "swap in", "recompute", "latency, swapping", "latency, recomputing"):
        table.add_column(heading, justify="right")
    for found in findings:
        costs = found.costs
        table.add_row(
            str(costs.block_size),
            *(format_duration(seconds) for seconds in (costs.swap_out_s, costs.swap_in_s, costs.recompute_s)),
            written(found.swap),
            written(found.recompute),
        )
    table.caption = "in brackets: how often a sequence gave way"
    return table


def written(service: Service) -> str:
    return f"{format_duration(service.normalised_latency_s)} ({service.num_preemptions})"


def draw(findings: Sequence[Finding], *, contiguous_s: float, name: str) -> Path:
    """Draws the dissertation's figures 5.18 and 5.19 in one row."""
    figure, axes = panels("attention of a step", "latency at a fixed rate", "one sequence gives way", "in a small pool")
    sizes = [found.costs.block_size for found in findings]

    def line(axis: Axes, values_s: Sequence[float], label: str) -> None:
        axis.plot(sizes, [1e3 * value_s for value_s in values_s], marker=".", label=label)

    line(axes[0], [found.costs.attention_s for found in findings], "paged")
    axes[0].axhline(1e3 * contiguous_s, linestyle=":", color="black", label="contiguous")
    for dataset in DATASETS:
        line(axes[1], [found.latency_s[dataset.name] for found in findings], dataset.name)
    line(axes[2], [found.costs.swap_out_s for found in findings], "swap out")
    line(axes[2], [found.costs.swap_in_s for found in findings], "swap in")
    line(axes[2], [found.costs.recompute_s for found in findings], "recompute")
    line(axes[3], [found.swap.normalised_latency_s for found in findings], "swap")
    line(axes[3], [found.recompute.normalised_latency_s for found in findings], "recompute")
    units = ("ms", "normalised latency (ms/token)", "ms", "normalised latency (ms/token)")
    for axis, unit in zip(axes, units, strict=True):
        axis.set_xscale("log", base=2)
        axis.set_xlabel("block size (tokens)")
        axis.set_ylabel(unit)
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=8)
    return save(figure, name)
