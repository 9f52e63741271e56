"""How long collectives take between two processes of this machine, each bound to a core: what the planner's loopback
figures come from."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from statistics import quantiles
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.parallel.pair import serve_pair
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.units import format_bytes, format_duration
from headway.models.layout import TensorAxis
from headway.planner.serving.fit import fit_fabric

SIZES = tuple(4**exponent * 1024 for exponent in range(8))
"""Bytes of the tensor that is summed: of two ranks, as many leave each."""

console = Console()


def main(
    *,
    repeats: Annotated[int, Option(min=8, help="Sums of each size.")] = 200,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "fabric",
) -> None:
    """Sum tensors of growing size over two ranks and fit latency and bandwidth."""
    samples = serve_pair(time_sums, SIZES, repeats)
    fit = fit_fabric([(sample["num_bytes"], sample["tenth_s"]) for sample in samples])
    table = Table("tensor", "the fastest tenth takes", "half take", "fit")
    for sample in samples:
        fitted_s = fit.fabric.collective_s(sample["num_bytes"], num_ranks=2)
        durations = (format_duration(seconds) for seconds in (sample["tenth_s"], sample["half_s"], fitted_s))
        table.add_row(format_bytes(sample["num_bytes"]), *durations)
    console.print(table)
    console.print(
        f"latency {format_duration(fit.fabric.latency_s)}, {format_bytes(round(fit.fabric.bytes_per_s))}/s, "
        f"to within {fit.relative_error:.0%}"
    )
    document = {"operation": "all_reduce", "num_ranks": 2, "samples": samples, "fit": asdict(fit)}
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")


def time_sums(axis: TensorAxis, sizes: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """Of each size the upper bounds of the fastest tenth and of the faster half: neighbours only ever slow it down."""
    samples = []
    for num_bytes in sizes:
        x = torch.ones(num_bytes // 4)
        durations_s = quantiles(_time(partial(axis.all_reduce, x, site="fit"), repeats), n=10)
        samples.append({"num_bytes": num_bytes, "tenth_s": durations_s[0], "half_s": durations_s[4]})
    return samples


def _time(call: Callable[[], object], repeats: int) -> list[float]:
    durations_s = []
    for _ in range(repeats + 1):
        started_s = time.perf_counter()
        call()
        durations_s.append(time.perf_counter() - started_s)
    return durations_s[1:]  # the first warms up


if __name__ == "__main__":
    typer.run(main)
