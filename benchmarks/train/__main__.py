"""`make bench-train`: in parts, each a command of its own where time is short."""

import json
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.serve.report import RESULTS_DIR, write_result
from benchmarks.train.computing import on_cores, train_execution
from benchmarks.train.costs import restart_s, split_costs, tracing_costs
from benchmarks.train.gpt import Size, capture
from benchmarks.train.gpu import SIZE, gpu_rows, peak_flops, step_flops
from benchmarks.train.memory import held_row
from benchmarks.train.operators import OperatorTimes, part_programs
from benchmarks.train.peers import headway_pipeline, torch_pipeline
from benchmarks.train.prediction import prediction_figures, prediction_rows
from benchmarks.train.published import case_study
from benchmarks.train.sleeping import sleeping_rows
from benchmarks.train.slicing import kept_pairs, slicing_rows
from headway.core.units import format_bytes

_SIZE = Size(hidden=256)
_SMALL = Size(hidden=192, seq=32)
_BATCH = 32

console = Console()


class Part(StrEnum):
    """What is measured."""

    SLEEPING = "sleeping"
    PUBLISHED = "published"
    SLICES = "slices"
    COSTS = "costs"
    MEMORY = "memory"
    PIPELINE = "pipeline"
    PEERS = "peers"
    PREDICTION = "prediction"
    GPU = "gpu"


def main(
    *,
    only: Annotated[list[Part] | None, typer.Option(help="Parts; default: all.")] = None,
    stage_s: Annotated[float, typer.Option("--stage", help="Seconds that a stage's forward pass sleeps.")] = 0.1,
    steps: Annotated[int, typer.Option(help="Iterations of each; the first is left out.")] = 6,
    out: Annotated[Path, typer.Option(help="Where to write the result; other parts in it stay.")] = RESULTS_DIR
    / "train.json",
) -> None:
    """Measure actions, sleeping ranks, splitting, tracing, restarts, memory, pipelines of two workers beside one worker
    and torch's, and predictions."""
    parts: dict[Part, Callable[[], dict[str, Any]]] = {
        Part.SLEEPING: lambda: _sleeping(stage_s, steps),
        Part.PUBLISHED: lambda: _published(stage_s, steps),
        Part.SLICES: _slices,
        Part.COSTS: lambda: _costs(steps),
        Part.MEMORY: _memory,
        Part.PIPELINE: lambda: _pipeline(steps),
        Part.PEERS: lambda: _peers(steps),
        Part.PREDICTION: lambda: _prediction(steps),
        Part.GPU: lambda: _gpu(steps),
    }
    known: dict[str, Any] = json.loads(out.read_text()) if out.is_file() else {}
    known.pop("machine", None)
    for part in only or [part for part in Part if part is not Part.GPU or torch.cuda.is_available()]:
        known[part.value] = parts[part]()
        write_result(out, known)


def _sleeping(stage_s: float, steps: int) -> dict[str, Any]:
    rows = sleeping_rows(stage_s, steps)
    table = Table(
        "ranks",
        "",
        "iteration",
        "least",
        "simulated",
        "error of the least",
        "CPU an action",
        "of the iteration",
        "wait over theory",
    )
    for row in rows:
        table.add_row(
            str(row.num_ranks),
            "no sleep" if not row.stage_s else "block" if row.blocks else "",
            f"{row.iteration_s:.3f} s",
            f"{row.least_s:.3f} s",
            f"{row.simulated_s:.3f} s",
            f"{row.error:+.1%}",
            f"{row.action_us:.0f} us",
            f"{row.overhead:.1%}",
            f"{row.wait_over_theory:+.1%}" if row.stage_s else "",
        )
    console.print(table)
    return {"rows": [{**asdict(row), "error": row.error} for row in rows]}


def _published(stage_s: float, steps: int) -> dict[str, Any]:
    study = case_study(stage_s, steps)
    console.print(
        f"GraphPipe's case study: a chain takes {study.ratio:.3f} times as long as branches, (N + 7) / (N + 3) is "
        f"{study.wanted:.3f}: {study.error:+.1%}"
    )
    return {"case_study": {**asdict(study), "ratio": study.ratio, "error": study.error}}


def _slices() -> dict[str, Any]:
    """Two iterations of each of TeraPipe's schemes."""
    rows = slicing_rows(repeats=2)
    table = Table("model", "slices", "published", "by the law", "simulated on 8 ranks", "slept", "longer by")
    for row in rows:
        equal = len(set(row.slices)) == 1
        table.add_row(
            row.model,
            f"{len(row.slices)} equal" if equal else f"{len(row.slices)}: {row.slices[0]} to {row.slices[-1]}",
            "" if row.published_s is None else f"{row.published_s:.3f} s",
            f"{row.fitted_s:.3f} s",
            f"{row.simulated_s:.3f} s",
            f"{row.slept_s:.3f} s",
            f"{row.slept_s / row.simulated_s - 1:+.1%}",
        )
    console.print(table)
    kept = kept_pairs(rows)
    for model, by_kind in kept.items():
        (slept, num_slept), (published, num_published) = by_kind["slept"], by_kind["published"]
        console.print(
            f"{model}: of pairs 2 % apart {slept} of {num_slept} keep their order asleep, {published} of "
            f"{num_published} by the law on as many stages as were published"
        )
    return {"rows": [asdict(row) for row in rows], "kept_pairs": kept}


def _costs(steps: int) -> dict[str, Any]:
    step = capture(_SMALL, (4,))
    splitting, tracing = split_costs(step, steps), tracing_costs(_SMALL)
    execution = step.execution((4,), batch=_BATCH, micro_batch=4)
    again_s, times = restart_s(step, execution), OperatorTimes()
    parts = [(times.of_operators(each), times.of_program(each)) for each in part_programs(execution, step.programs)]
    error = median(abs(operators_s / whole_s - 1) for operators_s, whole_s in parts)
    console.print(f"F + I + W over F + B, CPU time: {splitting.ratio:.3f}")
    console.print(
        f"four stages: traced and compiled in {tracing.traced_s:.2f} s ({tracing.traced_cpu_s:.2f} s of CPU), from the "
        f"run's directory in {tracing.kept_s:.2f} s ({tracing.kept_cpu_s:.2f} s of CPU)"
    )
    console.print(f"from a kill to the next step's end: {again_s:.2f} s")
    console.print(f"parts foretold from their operators, CPU time: median error {error:.1%}")
    return {
        "size": asdict(_SMALL),
        "splitting": {**asdict(splitting), "ratio": splitting.ratio},
        "tracing": asdict(tracing),
        "restart_s": again_s,
        "parts": [{"operators_s": operators_s, "whole_s": whole_s} for operators_s, whole_s in parts],
        "median_error_of_parts": error,
    }


def _memory() -> dict[str, Any]:
    """1F1B beside torch's, and what is certified of others."""
    step = capture(_SMALL, (4,))
    rows = []
    table = Table("order", "held by rank 0", "by rank 1", "of what was certified")
    for method, recomputes in (("1f1b", False), ("gpipe", False), ("1f1b", True)):
        execution = step.execution((4,), batch=_BATCH, micro_batch=4, method=method, recomputes=recomputes)
        rows.append(held_row(step, execution, method=method, recomputes=recomputes))
        table.add_row(
            f"{method}{', recomputing' if recomputes else ''}",
            *map(format_bytes, rows[-1].held_bytes),
            ", ".join(f"{share:.0%}" for share in rows[-1].shares),
        )
    for zero in range(4):
        execution = step.copies(micro_batch=8, batch=_BATCH, zero=zero)
        rows.append(held_row(step, execution, method="copies", zero=zero, optimizer="adamw"))
        shares = ", ".join(f"{share:.0%}" for share in rows[-1].shares)
        table.add_row(f"two copies, ZeRO {zero}", *map(format_bytes, rows[-1].held_bytes), shares)
    theirs = torch_pipeline(step.model, _SMALL, batch=_BATCH, micro_batch=4, steps=2, counts_memory=True).held_bytes
    table.add_row("torch's 1F1B", *map(format_bytes, theirs), "")
    console.print(table)
    return {
        "size": asdict(_SMALL),
        "rows": [{**asdict(row), "shares": row.shares} for row in rows],
        "torch_held_bytes": theirs,
    }


def _gpu(steps: int) -> dict[str, Any]:
    """Needs a GPU."""
    name, rows = gpu_rows(steps)
    table = Table("by", "precision", "ranks", "iteration", "least", "predicted", "MFU", "held", "of what was certified")
    for row in rows:
        shares = (held / most for held, most in zip(row.held_bytes, row.certified_bytes, strict=False))
        table.add_row(
            row.by,
            row.precision,
            str(row.num_ranks),
            f"{row.seconds * 1e3:.1f} ms",
            f"{row.least_s * 1e3:.1f} ms",
            f"{row.predicted_s * 1e3:.1f} ms" if row.predicted_s else "",
            f"{step_flops() / row.seconds / peak_flops(name, row.precision):.1%}",
            ", ".join(map(format_bytes, row.held_bytes)),
            ", ".join(f"{share:.1%}" for share in shares),
        )
    console.print(name, table)
    return {"gpu": name, "size": asdict(SIZE), "flops": step_flops(), "rows": [asdict(row) for row in rows]}


def _pipeline(steps: int) -> dict[str, Any]:
    """One worker and two, a core each."""
    step = capture(_SIZE, (4,))
    with on_cores(1):
        one = train_execution(step, step.execution((), batch=_BATCH, micro_batch=4), steps=steps)
    two = train_execution(step, step.execution((4,), batch=_BATCH, micro_batch=4), steps=steps)
    console.print(
        f"one worker {one.least_s:.3f} s, two {two.least_s:.3f} s: {one.least_s / two.least_s:.2f} times as fast "
        f"(medians {one.seconds:.3f} s and {two.seconds:.3f} s)"
    )
    return {"size": asdict(_SIZE), "one": asdict(one), "two": asdict(two), "speed_up": one.least_s / two.least_s}


def _peers(steps: int) -> dict[str, Any]:
    """In turns, so that what else the machine does strikes both."""
    step = capture(_SMALL, (4,))
    execution = step.execution((4,), batch=_BATCH, micro_batch=4)
    ours, theirs = [], []
    for _ in range(3):
        ours.append(headway_pipeline(step, execution, steps=steps))
        theirs.append(torch_pipeline(step.model, _SMALL, batch=_BATCH, micro_batch=4, steps=steps))
    least = min(each.least_s for each in ours), min(each.least_s for each in theirs)
    cpu = min(each.cpu_s for each in ours), min(each.cpu_s for each in theirs)
    medians = median(each.seconds for each in ours), median(each.seconds for each in theirs)
    losses = max(abs(a - b) / b for a, b in zip(ours[0].losses, theirs[0].losses, strict=True))
    table = Table("", "least", "median", "CPU of both ranks")
    for place, name in enumerate(("Headway", "torch")):
        table.add_row(name, f"{least[place]:.3f} s", f"{medians[place]:.3f} s", f"{cpu[place]:.3f} s")
    console.print(table)
    console.print(f"losses differ by {losses:.1e}")
    return {
        "size": asdict(_SMALL),
        "headway": [asdict(each) for each in ours],
        "torch": [asdict(each) for each in theirs],
        "speed_up": least[1] / least[0],
        "speed_up_of_medians": medians[1] / medians[0],
        "speed_up_of_cpu": cpu[1] / cpu[0],
        "loss_difference": losses,
    }


def _prediction(steps: int) -> dict[str, Any]:
    table = Table("cut at", "micro-batch", "order", "by operators", "by parts", "measured", "error")
    rows = prediction_rows(_SMALL, _BATCH, steps)
    for row in rows:
        table.add_row(
            str(row.cut),
            str(row.micro_batch),
            f"{row.method}, recomputing" if row.recomputes else row.method,
            f"{row.by_operators_s:.3f} s",
            f"{row.by_parts_s:.3f} s",
            f"{row.seconds:.3f} s",
            f"{row.by_parts_s / row.seconds - 1:+.1%}",
        )
    console.print(table)
    figures = prediction_figures(rows)
    console.print(
        f"{len(rows)} plans: rank correlation {figures['rank_correlation']:.2f}, median error "
        f"{figures['median_error']:.1%}, by operators {figures['median_error_by_operators']:.1%}"
    )
    return {"size": asdict(_SMALL), "rows": [asdict(row) for row in rows], **figures}


if __name__ == "__main__":
    typer.run(main)
