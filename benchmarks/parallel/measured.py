"""Figures 4.2 to 4.5 of the thesis measured on two processes of this machine, one core each, in small."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.figure import panels, save
from benchmarks.model import make_benchmark_model
from benchmarks.parallel.__main__ import CORES, LONG_DIRECTORY, LONG_SPEC, SHORT_BURSTS
from benchmarks.parallel.figures import COLOURS
from benchmarks.parallel.long_decode import LongDecode, Timing
from benchmarks.parallel.ranks import RankWork, do_work
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.parallel_config import SINGLE, ParallelConfig

BATCHES = (4, 16, 64)
CONTEXTS = (256, 1024, 4096, 16_384)
SHOWN_BATCH, SHOWN_CONTEXT = 16, 4096  # of the panels that show one batch or one context
GROUPS = {
    "tp": ParallelConfig(tp=2),
    "cp": ParallelConfig(cp=2),
    "cp, split weights": ParallelConfig(cp=2, cp_ffn="tensor"),
}

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The time of one decode step of a batch.

    Attributes:
        step_s: with two processes; of replicas, the slower one with half of the batch.
        attention_s: of it, what a short context does not take.
        waiting_s: of it, the leader's time in collectives.
    """

    layout: str
    batch: int
    context_tokens: int
    step_s: float
    attention_s: float
    waiting_s: float

    @property
    def layer_tokens_per_s(self) -> float:
        return self.batch / self.step_s * LONG_SPEC.num_layers


def main(
    *,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "parallel-measured",
) -> None:
    """Time decode steps of two replicas, and of every way to share one model, over batches and contexts."""
    make_benchmark_model(LONG_DIRECTORY, spec=LONG_SPEC)
    points = measure_replicas()
    for layout, parallel in GROUPS.items():
        console.print(f"{layout} 2")
        points += measure_group(layout, parallel)
    console.print(table_of(points))
    draw_lengths(points)
    draw_steps(points)
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', {'points': list(map(asdict, points))})}")


def measure_group(layout: str, parallel: ParallelConfig) -> list[Measured]:
    service = do_work(work_of(divisor=1), parallel, cores=CORES)
    return [point_of(layout, *case, timing) for case, timing in zip(cases(), service.timings, strict=True)]


def measure_replicas() -> list[Measured]:
    """Times two lone workers, each with half of the batch, at the same time."""
    console.print("dp 2")
    with ThreadPoolExecutor(len(CORES)) as threads:
        calls = [threads.submit(do_work, work_of(divisor=2), SINGLE, cores=(core,)) for core in CORES]
        services = [call.result() for call in calls]
    slower = [
        max(timings, key=lambda timing: timing.step_s)
        for timings in zip(*(service.timings for service in services), strict=True)
    ]
    return [point_of("dp", *case, timing) for case, timing in zip(cases(), slower, strict=True)]


def cases() -> list[tuple[int, int]]:
    return [(batch, context_tokens) for batch in BATCHES for context_tokens in CONTEXTS]


def work_of(*, divisor: int) -> RankWork:
    decodes = [LongDecode(num_sequences=batch // divisor, context_tokens=context) for batch, context in cases()]
    return RankWork(directory=LONG_DIRECTORY, dtype="float32", bursts=SHORT_BURSTS, decodes=tuple(decodes))


def point_of(layout: str, batch: int, context_tokens: int, timing: Timing) -> Measured:
    return Measured(
        layout=layout,
        batch=batch,
        context_tokens=context_tokens,
        step_s=timing.step_s,
        attention_s=max(timing.step_s - timing.short_s, 0.0),
        waiting_s=timing.waiting_share * timing.step_s,
    )


def table_of(points: Sequence[Measured]) -> Table:
    layouts = ["dp", *GROUPS]
    table = Table(title="tokens/s, all layers")
    for heading in ("batch", "context", *layouts):
        table.add_column(heading, justify="right")
    for batch, context_tokens in cases():
        rates = {
            point.layout: point.layer_tokens_per_s / LONG_SPEC.num_layers
            for point in points
            if (point.batch, point.context_tokens) == (batch, context_tokens)
        }
        best = max(rates, key=rates.__getitem__)
        cells = [f"[green]{rates[each]:.1f}[/]" if each == best else f"{rates[each]:.1f}" for each in layouts]
        table.add_row(str(batch), str(context_tokens), *cells)
    return table


def decode_rate(points: Sequence[Measured], output_tokens: int) -> float:
    """Tokens/s per layer while that many are decoded behind the shortest context, steps between those measured taken
    as linear in their context."""
    contexts = [point.context_tokens for point in points]
    steps_s = [point.step_s for point in points]
    mean_step_s = np.interp(contexts[0] + np.arange(output_tokens), contexts, steps_s).mean()
    return float(points[0].batch / mean_step_s * LONG_SPEC.num_layers)


def draw_lengths(points: Sequence[Measured]) -> Path:
    """Draws figure 4.2 for each batch, and 4.3 for one."""
    titles = (*(f"batch {batch}" for batch in BATCHES), f"batch {SHOWN_BATCH}, from {CONTEXTS[0]} tokens on")
    figure, axes = panels(*titles)
    for layout, colour in COLOURS.items():
        own = [point for point in points if point.layout == layout]
        for axis, batch in zip(axes, BATCHES, strict=False):
            shown = [point for point in own if point.batch == batch]
            lengths, rates = [point.context_tokens for point in shown], [point.layer_tokens_per_s for point in shown]
            axis.plot(lengths, rates, marker=".", color=colour, label=layout)
            axis.set(xlabel="context, tokens", ylabel="tokens/s per layer", xscale="log", yscale="log")
        decoded = [length - CONTEXTS[0] for length in CONTEXTS[1:]]
        shown = [point for point in own if point.batch == SHOWN_BATCH]
        axes[-1].plot(decoded, [decode_rate(shown, length) for length in decoded], marker=".", color=colour)
    axes[-1].set(xlabel="decoded tokens", ylabel="tokens/s per layer", xscale="log", yscale="log")
    axes[0].legend(fontsize=7)
    return save(figure, "parallel-measured-lengths")


def draw_steps(points: Sequence[Measured]) -> Path:
    """Draws figure 4.4 at one context, and 4.5 at the largest batch and context."""
    figure, axes = panels(
        f"{SHOWN_CONTEXT} tokens", f"{BATCHES[-1]} x {CONTEXTS[-1]} tokens: attention, the rest, exchange"
    )
    for layout, colour in COLOURS.items():
        shown = [point for point in points if (point.layout, point.context_tokens) == (layout, SHOWN_CONTEXT)]
        latencies_ms, rates = [1e3 * point.step_s for point in shown], [point.layer_tokens_per_s for point in shown]
        axes[0].plot(latencies_ms, rates, marker=".", color=colour, label=layout)
    axes[0].set(xlabel="ms a step", ylabel="tokens/s per layer")
    axes[0].legend(fontsize=7)
    last = [point for point in points if (point.batch, point.context_tokens) == (BATCHES[-1], CONTEXTS[-1])]
    for place, point in enumerate(last):
        rest_s = point.step_s - point.attention_s - point.waiting_s
        bottom = 0.0
        for seconds, alpha in ((point.attention_s, 1.0), (max(rest_s, 0.0), 0.6), (point.waiting_s, 0.3)):
            axes[1].bar(place, 1e3 * seconds, bottom=bottom, alpha=alpha, color=COLOURS[point.layout])
            bottom += 1e3 * seconds
    axes[1].set_xticks(range(len(last)), [point.layout for point in last], fontsize=7)
    axes[1].set(ylabel="ms a step")
    return save(figure, "parallel-measured-steps")


if __name__ == "__main__":
    typer.run(main)
