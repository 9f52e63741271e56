"""The kernels on the GPU at hand: times, and for decode attention the share of the copy bandwidth of the same run."""

from dataclasses import asdict
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.kernels.batch import BATCHES
from benchmarks.kernels.decode import decode_us
from benchmarks.kernels.engine import engine_timings
from benchmarks.kernels.model import model_timings
from benchmarks.kernels.peers import PEERS, peer_times
from benchmarks.kernels.step import step_timings
from benchmarks.kernels.stopwatch import copy_bytes_per_us
from benchmarks.serve.report import RESULTS_DIR, write_result

console = Console()


def main(*, name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "kernels") -> None:
    """Measure, or say that there is no GPU and write nothing."""
    if not torch.cuda.is_available():
        console.print("Not run: there is no GPU here.", style="red")
        raise typer.Exit(1)
    bandwidth = copy_bytes_per_us()
    peer_titles = [f"{name}, us" for name in PEERS]
    table = Table(
        "batch", "read, MB", "us", "of copy bandwidth", "merge", *peer_titles, title=torch.cuda.get_device_name()
    )
    rows = []
    for batch in BATCHES:
        (time_us, merge_us), peers_us = decode_us(batch), dict(peer_times(batch))
        share = batch.num_bytes / time_us / bandwidth
        times = {"us": time_us, "share": share, "merge_us": merge_us, "peers_us": peers_us}
        rows.append({"batch": batch.name, "bytes": batch.num_bytes, **times})
        peers = ["" if peer_us is None else f"{peer_us:.1f}" for peer_us in peers_us.values()]
        merge = f"{merge_us / time_us:.0%}"
        table.add_row(batch.name, f"{batch.num_bytes / 1e6:.0f}", f"{time_us:.1f}", f"{share:.0%}", merge, *peers)
    console.print(table)
    others = Table("kernel", "us", "per second")
    timings = list(step_timings())
    for timing in timings:
        others.add_row(timing.name, f"{timing.us:.1f}", f"{timing.amount / timing.us / 1e3:.0f} G{timing.unit}")
    console.print(others)
    models = Table("decode step, Llama 3 8B", "graph, us", "launches, us", "of copy bandwidth")
    steps = list(model_timings())
    for step in steps:
        share = step.num_bytes / step.replayed_us / bandwidth
        models.add_row(f"batch {step.batch_size}", f"{step.replayed_us:.0f}", f"{step.launched_us:.0f}", f"{share:.0%}")
    console.print(models)
    engines = Table("engine step, 1B parameters", "after its predecessor, us", "launched ahead, us")
    engine_steps = list(engine_timings())
    for engine_step in engine_steps:
        engines.add_row(
            f"batch {engine_step.batch_size}", f"{engine_step.waiting_us:.0f}", f"{engine_step.ahead_us:.0f}"
        )
    console.print(engines)
    document = {
        "device": torch.cuda.get_device_name(),
        "copy_bytes_per_us": bandwidth,
        "batches": rows,
        "kernels": [asdict(timing) for timing in timings],
        "model_steps": [asdict(step) for step in steps],
        "engine_steps": [asdict(engine_step) for engine_step in engine_steps],
    }
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")


if __name__ == "__main__":
    typer.run(main)
