"""What was measured of the kernels, for people (tables) and for machines."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.kernels.targets import MB, Verdict
from benchmarks.kernels.timings import Measured

_COLOURS = {True: "green", False: "red", None: "yellow"}


def print_measured(console: Console, measured: Measured, verdicts: Sequence[Verdict]) -> None:
    console.print(_decode_table(measured))
    for line in absences(measured):
        console.print(line, style="yellow", highlight=False)
    kernels = Table("kernel", "us", "per second")
    for timing in measured.kernels:
        kernels.add_row(timing.name, f"{timing.us:.1f}", f"{timing.amount / timing.us / 1e3:.0f} G{timing.unit}")
    console.print(kernels)
    models = Table("decode step, Llama 3 8B", "graph, us", "on the device, us", "launches, us")
    for step in measured.steps:
        times = (step.replayed_us, step.device_us, step.launched_us)
        models.add_row(f"batch {step.batch_size}", *(f"{time_us:.0f}" for time_us in times))
    console.print(models)
    engines = Table("engine step, 1B parameters", "after its predecessor, us", "launched ahead, us")
    for engine in measured.engine_steps:
        engines.add_row(f"batch {engine.batch_size}", f"{engine.waiting_us:.0f}", f"{engine.ahead_us:.0f}")
    console.print(engines)
    for failure in measured.failures:
        console.print(f"{failure.section}: not run: {failure.reason}", style="red", highlight=False)
    for verdict in verdicts:
        console.print(str(verdict), style=_COLOURS[verdict.is_met], highlight=False)


def _decode_table(measured: Measured) -> Table:
    peers = list(dict.fromkeys(timing.peer for timing in measured.peers))
    table = Table("batch", "read, MB", "us", "of copy bandwidth", "merge", *(f"{peer}, us" for peer in peers))
    peers_us = {(timing.batch, timing.peer): timing.us for timing in measured.peers}
    for timing in measured.decodes:
        times_us = [peers_us.get((timing.batch, peer)) for peer in peers]
        table.add_row(
            timing.batch,
            f"{timing.num_bytes / MB:.0f}",
            f"{timing.us:.1f}",
            f"{timing.num_bytes / timing.us / measured.bandwidths.memory:.0%}",
            f"{timing.merge_us / timing.us:.0%}",
            *("" if time_us is None else f"{time_us:.1f}" for time_us in times_us),
        )
    return table


def absences(measured: Measured) -> list[str]:
    """Peers that were not run: one line for each reason."""
    batches: dict[tuple[str, str], list[str]] = {}
    for timing in measured.peers:
        if timing.reason is not None:
            batches.setdefault((timing.peer, timing.reason), []).append(timing.batch)
    counts: dict[str, int] = {}
    for timing in measured.peers:
        counts[timing.peer] = counts.get(timing.peer, 0) + 1
    return [
        f"{peer}{'' if len(names) == counts[peer] else ', ' + '; '.join(names)}: not run: {reason}"
        for (peer, reason), names in batches.items()
    ]


def document_of(measured: Measured, verdicts: Sequence[Verdict], *, device: str) -> dict[str, Any]:
    targets = [asdict(verdict) | {"is_met": verdict.is_met} for verdict in verdicts]
    return {"device": device, **asdict(measured), "targets": targets}
