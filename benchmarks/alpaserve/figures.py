"""Figures 4.2 and 4.4 to 4.10 of the dissertation from V100 profiles, and what its text says beside what comes out."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from matplotlib.axes import Axes
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.alpaserve.case import read_profiles
from benchmarks.alpaserve.motivation import (
    NUM_DEVICES,
    Pair,
    Profiles,
    arrivals,
    crossing,
    memory,
    objectives,
    two_models,
    weight_bytes,
)
from benchmarks.figure import panels, save
from headway.core.stage_profile import StageProfile
from headway.planner.placement.queueing import largest_communication_overhead, largest_uneven_overhead

PROFILES = Path("../shared/data/alpaserve/v100_profiles.json")
REPLICATION, PIPELINE = "replication", "model parallel"
MEMORIES = (1, 2, 4, 8)
RATES = (4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0, 30.0, 32.0)
CVS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
SCALES = (1.5, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 40.0)
OVERHEADS = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5)
STAGES = (1, 2, 4, 8)

Row = tuple[str, str, str]


def main(profiles: Annotated[Path, Option(help="Stage latencies in AlpaServe's format.")] = PROFILES) -> None:
    """Draw the figures, and print what the text says of each beside what comes out here."""
    known = read_profiles(profiles)
    table = Table("figure", "the text", "here")
    for draw in (case_study, memories, processes, slos, overheads, costs, bounds):
        for row in draw(known):
            table.add_row(*row)
    Console().print(table)


def case_study(profiles: Profiles) -> list[Row]:
    settings = (
        ("Poisson, 1.5 + 1.5 requests/s", (1.5, 1.5), 1.0, "0.70 s to 0.55 s, 1.3x"),
        ("Gamma, CV 3", (1.5, 1.5), 3.0, "1.9x"),
        ("Poisson, 20 % and 80 %", (0.6, 2.4), 1.0, "6.6x"),
    )
    figure, axes = panels(*(name for name, *_ in settings))
    rows = []
    for each, (name, rates, cv, text) in zip(axes, settings, strict=True):
        pair = two_models(profiles, rates=rates, cv=cv)
        for label, outcome in ((REPLICATION, pair.replication), (PIPELINE, pair.pipeline)):
            latency_s = np.sort(outcome.latency_s)
            each.plot(latency_s, np.linspace(0, 1, len(latency_s)), label=label)
        each.set_xlim(0, float(np.percentile(pair.replication.latency_s, 98)))
        each.set_xlabel("latency, s")
        found = f"{pair.replication.mean_latency_s:.2f} s to {pair.pipeline.mean_latency_s:.2f} s, {pair.speedup:.1f}x"
        rows.append((f"4.2, {name}", text, found))
    axes[0].set_ylabel("share of requests")
    axes[0].legend()
    save(figure, "alpaserve-two-models")
    return rows


def memories(profiles: Profiles) -> list[Row]:
    pairs = [memory(profiles, models_per_device=number) for number in MEMORIES]
    figure, axes = panels("mean latency, s", "p99 latency, s")
    _draw_latencies(axes, MEMORIES, pairs, "memory of a device, in models")
    save(figure, "alpaserve-memory")
    found = f"{pairs[0].speedup:.1f}x with room for one model a device, {pairs[-1].speedup:.2f}x with room for all"
    return [("4.4, memory", "pays where memory is short; no gain where a device holds all models", found)]


def processes(profiles: Profiles) -> list[Row]:
    by_rate = [arrivals(profiles, rate=rate) for rate in RATES]
    figure, axes = panels("mean latency, s", "p99 latency, s")
    _draw_latencies(axes, RATES, by_rate, "requests/s of all models")
    for each in axes:
        each.set_yscale("log")
    save(figure, "alpaserve-rate")
    by_cv = [arrivals(profiles, cv=cv) for cv in CVS]
    figure, axes = panels("mean latency, s", "p99 latency, s")
    _draw_latencies(axes, CVS, by_cv, "coefficient of variation")
    save(figure, "alpaserve-cv")
    turning = crossing(RATES, lambda rate: arrivals(profiles, rate=rate), is_better=lambda pair: pair.speedup > 1)
    return [
        (
            "4.5, rate",
            "pays at low rates; worse near the peak",
            f"{by_rate[0].speedup:.2f}x at {RATES[0]:g}/s, {max(pair.speedup for pair in by_rate):.1f}x at best, "
            + (f"worse from {turning:g}/s on" if np.isfinite(turning) else f"never worse up to {RATES[-1]:g}/s"),
        ),
        (
            "4.6, burstiness",
            "the burstier, the more it pays",
            ", ".join(
                f"{pair.speedup:.1f}x at CV {cv:g}" for cv, pair in zip(CVS, by_cv, strict=True) if cv in (1, 3, 6)
            ),
        ),
    ]


def slos(profiles: Profiles) -> list[Row]:
    pairs = [objectives(profiles, slo_scale=scale) for scale in SCALES]
    figure, axes = panels("attainment, profiled stages", "attainment by overhead alpha")
    axes[0].plot(SCALES, [pair.replication.attainment for pair in pairs], "o-", label=REPLICATION)
    axes[0].plot(SCALES, [pair.pipeline.attainment for pair in pairs], "s-", label=PIPELINE)
    axes[1].plot(SCALES, [pair.replication.attainment for pair in pairs], "o-", label=REPLICATION)
    for overhead in OVERHEADS:
        found = [objectives(profiles, slo_scale=scale, overhead=overhead).pipeline.attainment for scale in SCALES]
        axes[1].plot(SCALES, found, "-", label=f"alpha {overhead:g}")
    for each in axes:
        each.set_xlabel("SLO, in latencies on one device")
        each.legend(fontsize=7)
    save(figure, "alpaserve-slo")

    def is_ahead(pair: Pair) -> bool:
        return pair.pipeline.attainment > pair.replication.attainment

    turning = crossing(SCALES, lambda scale: objectives(profiles, slo_scale=scale), is_better=is_ahead)
    free = [objectives(profiles, slo_scale=scale, overhead=1.0) for scale in SCALES]
    leads = [pair.pipeline.attainment - pair.replication.attainment for pair in free]
    tight = pairs[SCALES.index(5.0)]
    return [
        (
            "4.7a, SLO",
            "ahead below 10x the latency, behind where it is loose",
            f"{tight.pipeline.attainment:.1%} against {tight.replication.attainment:.1%} at 5x; "
            + (f"behind from {turning:g}x on" if np.isfinite(turning) else f"ahead up to {SCALES[-1]:g}x"),
        ),
        ("4.7b, overhead", "without overhead always ahead", f"{min(leads):+.1%} to {max(leads):+.1%}"),
    ]


def overheads(profiles: Profiles) -> list[Row]:
    """How much longer n devices take than one n times as fast: stages that wait for the slowest, and exchanges."""
    known = profiles["bert-2.6b"]
    single_s = _on(known, pp=1, op=1).latency_s
    uneven, between, within = [], [], []
    for number in STAGES:
        stages = _on(known, pp=number, op=1)
        slowest_s = max(stages.batches[0].stage_latency_s)
        uneven.append(number * slowest_s - stages.latency_s)
        between.append(stages.latency_s - single_s)
        within.append(number * _on(known, pp=1, op=number).latency_s - single_s)
    figure, axes = panels("pipeline: seconds a request holds devices", "within operators")
    axes[0].bar([str(number) for number in STAGES], [single_s] * len(STAGES), label="computing")
    axes[0].bar([str(number) for number in STAGES], between, bottom=single_s, label="between stages")
    axes[0].bar([str(number) for number in STAGES], uneven, bottom=np.add(between, single_s), label="uneven stages")
    axes[1].bar([str(number) for number in STAGES], [single_s] * len(STAGES), label="computing")
    axes[1].bar([str(number) for number in STAGES], within, bottom=single_s, label="exchanges")
    for each in axes:
        each.set_xlabel("devices")
        each.legend(fontsize=7)
    save(figure, "alpaserve-overhead")
    return [
        (
            "4.8, overheads, 8 devices",
            "pipelines: uneven stages above all; within operators: exchanges, and more of them",
            (
                f"uneven {uneven[-1] / single_s:.0%}, between stages {between[-1] / single_s:.0%}; "
                f"within operators {within[-1] / single_s:.0%} of the computing"
            ),
        )
    ]


def costs(profiles: Profiles) -> list[Row]:
    known = profiles["bert-2.6b"]
    pipelines = [_on(known, pp=number, op=1) for number in STAGES]
    sharded = [_on(known, pp=1, op=number) for number in STAGES]
    single = pipelines[0]
    figure, axes = panels("latency, s", "requests/s", "weights on all devices, GB")
    lines = {
        "pipeline": (
            [each.latency_s for each in pipelines],
            [1 / max(each.batches[0].stage_latency_s) for each in pipelines],
            [sum(each.weight_bytes) / 1e9 for each in pipelines],
        ),
        "within operators": (
            [each.latency_s for each in sharded],
            [1 / each.latency_s for each in sharded],
            [number * sum(each.weight_bytes) / 1e9 for number, each in zip(STAGES, sharded, strict=True)],
        ),
        REPLICATION: (
            [single.latency_s for _ in STAGES],
            [number / single.latency_s for number in STAGES],
            [number * sum(single.weight_bytes) / 1e9 for number in STAGES],
        ),
    }
    for label, series in lines.items():
        for each, values in zip(axes, series, strict=True):
            each.plot(STAGES, values, "o-", label=label)
            each.set_xlabel("devices")
    axes[0].legend(fontsize=7)
    save(figure, "alpaserve-latency-throughput-memory")
    return [
        (
            "4.9, 8 devices",
            "a pipeline's latency is a little longer, its throughput higher than within operators; memory is constant",
            (
                f"latency {lines['pipeline'][0][-1]:.3f} s (one device {single.latency_s:.3f}, within "
                f"{lines['within operators'][0][-1]:.3f}); {lines['pipeline'][1][-1]:.1f} against "
                f"{lines['within operators'][1][-1]:.1f} requests/s; "
                f"{weight_bytes(known, stages=1) / 1e9:.1f} GB on one, {lines['pipeline'][2][-1]:.1f} on all"
            ),
        )
    ]


def bounds(_: Profiles) -> list[Row]:
    loads = np.linspace(0.05, 1.95, 96)
    figure, (axis,) = panels("largest overhead at which a pipeline is no slower", height=3.4)
    found: dict[str, Callable[[float], float]] = {
        "communication, alpha": largest_communication_overhead,
        "uneven stages, beta": largest_uneven_overhead,
    }
    for label, bound in found.items():
        axis.plot(loads / 2, [bound(float(load)) for load in loads], label=label)
    axis.set_xlabel("load of the two devices")
    axis.legend()
    save(figure, "alpaserve-queueing")
    best = max(loads, key=lambda load: largest_communication_overhead(float(load)))
    return [
        (
            "4.10, queues",
            "low overhead wanted at high load, and little communication at low load too",
            f"alpha is largest, {largest_communication_overhead(float(best)):.2f}, at a load of {best / 2:.0%}",
        )
    ]


def _draw_latencies(axes: Sequence[Axes], at: Sequence[float], pairs: Sequence[Pair], label: str) -> None:
    for name, style in ((REPLICATION, "o-"), (PIPELINE, "s-")):
        outcomes = [pair.replication if name == REPLICATION else pair.pipeline for pair in pairs]
        axes[0].plot(at, [outcome.mean_latency_s for outcome in outcomes], style, label=name)
        axes[1].plot(at, [outcome.latency_percentile_s(99) for outcome in outcomes], style, label=name)
    for each in axes:
        each.set_xlabel(label)
        each.set_ylim(bottom=0)
        each.legend(fontsize=7)


def _on(profiles: Sequence[StageProfile], *, pp: int, op: int) -> StageProfile:
    return next(profile for profile in profiles if (profile.pp, profile.op) == (pp, op))


if __name__ == "__main__":
    assert STAGES[-1] == NUM_DEVICES
    typer.run(main)
