"""Tables and figures of what paging saves."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from benchmarks.engine.dataset import DATASETS
from benchmarks.figure import panels, save
from benchmarks.serve.report import write_share
from benchmarks.waste.measurement import Finding
from benchmarks.waste.policy import Policy

MAX_WASTE = 0.04
MIN_GAIN = 2.0


def use_table(findings: Sequence[Finding]) -> Table:
    """Where the pool's slots go while requests wait, as in the dissertation's figure 5.2."""
    table = Table("dataset", "memory", title="KV slots while requests wait, mean over steps")
    for heading in ("tokens", "reserved", "internal", "external", "waste", "running"):
        table.add_column(heading, justify="right")
    for found in findings:
        use = found.use
        waste = write_share(use.waste)
        if found.policy is Policy.PAGED:
            waste = f"[{'green' if use.waste < MAX_WASTE else 'red'}]{waste}[/]"
        shares = (use.tokens, use.reserved, use.internal, use.external)
        table.add_row(found.dataset.name, found.policy, *map(write_share, shares), waste, f"{use.num_running:.1f}")
    table.caption = f"waste: of what sequences were given; target for paging: less than {write_share(MAX_WASTE)}"
    return table


def rate_table(findings: Sequence[Finding], *, bound_s: float) -> Table:
    """The sustained rates, and paging's as a multiple of each."""
    table = Table("dataset", "memory", title=f"requests/s at {1e3 * bound_s:.0f} ms mean normalised latency")
    for heading in ("requests/s", "paging sustains", "real model's latency there"):
        table.add_column(heading, justify="right")
    for found in findings:
        gain = gain_over(found, findings)
        text = f"{gain:.2f}x"
        if found.policy is Policy.MAX:
            text = f"[{'green' if gain >= MIN_GAIN else 'red'}]{text}[/]"
        real = "" if found.real_latency_s is None else f"{1e3 * found.real_latency_s:.0f} ms"
        table.add_row(found.dataset.name, found.policy, f"{found.rate_per_s:.2f}", text, real)
    table.caption = f"target: at least {MIN_GAIN:g}x that of max"
    return table


def gain_over(baseline: Finding, findings: Sequence[Finding]) -> float:
    """Paging's sustained rate over this one's, on the same dataset."""
    (paged,) = (f for f in findings if f.dataset == baseline.dataset and f.policy is Policy.PAGED)
    return paged.rate_per_s / baseline.rate_per_s


def draw(findings: Sequence[Finding], *, bound_s: float, name: str) -> Path:
    """Normalised latency over request rate, as in the dissertation's figure 5.12; and the use of memory, as in 5.2."""
    figure, axes = panels(*(dataset.name for dataset in DATASETS), "use of the KV pool, sharegpt")
    for axis, dataset in zip(axes, DATASETS, strict=False):
        for found in findings:
            if found.dataset == dataset:
                rates, latencies_s = zip(*found.curve, strict=True)
                axis.plot(rates, [1e3 * latency_s for latency_s in latencies_s], marker=".", label=found.policy)
        axis.axhline(1e3 * bound_s, linestyle=":", color="black", linewidth=1)
        axis.set_ylim(0, 2e3 * bound_s)
        axis.set_xlabel("requests/s")
        axis.set_ylabel("normalised latency (ms/token)")
        axis.legend(fontsize=8)
    shown = [found for found in findings if found.dataset == DATASETS[-1]]
    bottoms = [0.0] * len(shown)
    for part in ("tokens", "reserved", "internal", "external"):
        heights = [100 * getattr(found.use, part) for found in shown]
        axes[-1].bar([found.policy for found in shown], heights, bottom=bottoms, label=part)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    axes[-1].set_ylabel("slots (%)")
    axes[-1].legend(fontsize=8)
    return save(figure, name)
