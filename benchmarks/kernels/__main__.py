"""The kernels on the GPU at hand: times, what of the same run's copies they reach, and whether that is enough."""

from typing import Annotated

import torch
import typer
from rich.console import Console
from typer import Option

from benchmarks.kernels.decode import decode_timings, merge_timings
from benchmarks.kernels.engine import engine_timings
from benchmarks.kernels.model import model_timings
from benchmarks.kernels.peers import peer_timings
from benchmarks.kernels.report import document_of, print_measured
from benchmarks.kernels.step import step_timings
from benchmarks.kernels.stopwatch import bandwidths
from benchmarks.kernels.targets import verdicts_of
from benchmarks.kernels.timings import Measured
from benchmarks.serve.report import RESULTS_DIR, write_result

console = Console()


def main(*, name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "kernels") -> None:
    """Measure, or say that there is no GPU and write nothing."""
    if not torch.cuda.is_available():
        console.print("Not run: there is no GPU here.", style="red")
        raise typer.Exit(1)
    measured = Measured(bandwidths())
    measured.collect("decode", decode_timings(), measured.decodes)
    measured.collect("merges", merge_timings(measured.decodes), measured.merges)
    measured.collect("kernels", step_timings(), measured.kernels)
    measured.collect("model", model_timings(), measured.steps)
    measured.collect("engine", engine_timings(), measured.engine_steps)
    measured.collect("peers", peer_timings(), measured.peers)  # last: one that fails may leave the device unusable
    verdicts = verdicts_of(measured)
    print_measured(console, measured, verdicts)
    document = document_of(measured, verdicts, device=torch.cuda.get_device_name())
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")


if __name__ == "__main__":
    typer.run(main)
