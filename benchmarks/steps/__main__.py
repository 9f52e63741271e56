"""Where the time of a step goes while 64 sequences decode, and how far the burst is from its physical limit."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
import uvloop
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.model import BENCHMARK_SPEC, DEFAULT_DIRECTORY, MODEL_NAME, make_benchmark_model
from benchmarks.product import measured_limit
from benchmarks.serve.comparison import SETTLE_S, WARM_UP
from benchmarks.serve.options import Dtype
from benchmarks.serve.peers import Deployment, launch_headway
from benchmarks.serve.report import RESULTS_DIR, limit_line, write_result, write_share
from benchmarks.serve.server import Server, ServerError, free_port
from benchmarks.serve.workload import WorkloadSpec
from benchmarks.steps.part import MODEL_PARTS, Part
from benchmarks.steps.rounds import ARITHMETIC, Round, median_parts_s, median_stack, processor_parts_s
from benchmarks.steps.stack import burst_through_stack, openmp_environment
from headway.core.units import format_duration

MAX_OUTSIDE_MODEL = 0.10
SEED = 6

console = Console()


def main(
    *,
    sequences: Annotated[int, Option(min=2, help="That decode at once.")] = 64,
    steps: Annotated[int, Option(min=5, help="Timed in the engine, each round.")] = 40,
    rounds: Annotated[int, Option(min=1, help="Of engine and stack in turns.")] = 5,
    dtype: Annotated[Dtype, Option(help="Of weights and KV cache.")] = Dtype.FLOAT32,
    model_dir: Annotated[Path, Option(help="Benchmark model, made if absent.")] = DEFAULT_DIRECTORY,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "steps",
) -> None:
    """Time the parts in an engine alone, the steps in a whole stack, and PyTorch's matrix products."""
    make_benchmark_model(model_dir)
    spec = WorkloadSpec(num_requests=sequences, seed=SEED)
    limit = measured_limit(spec, replace(BENCHMARK_SPEC, dtype=dtype.value))
    try:
        done = uvloop.run(run_rounds(spec, dtype, model_dir.resolve(), num_steps=steps, num_rounds=rounds))
    except ServerError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from error
    parts, stack = median_parts_s(done), median_stack(done)
    console.print(step_table(parts, num_sequences=sequences))
    console.print(cpu_table(processor_parts_s(parts, stack), interval_s=stack.interval_s))
    console.print(f"burst of {sequences}: {stack.output_tokens_per_s:.0f} output tokens/s")
    console.print(limit_line(limit, {"headway": stack.output_tokens_per_s}))
    document = {
        "dtype": dtype,
        "num_sequences": sequences,
        "part_s": parts,
        "processor_s": processor_parts_s(parts, stack),
        "stack": asdict(stack),
        "rounds": [asdict(round_) for round_ in done],
        "limit": asdict(limit),
    }
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")


async def run_rounds(
    spec: WorkloadSpec, dtype: Dtype, model_dir: Path, *, num_steps: int, num_rounds: int
) -> list[Round]:
    """An engine alone and a stack, which waits meanwhile, in turns. No burst finds its prompts in the prefix cache."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        deployment = Deployment(
            model_name=MODEL_NAME,
            model_dir=model_dir,
            port=free_port(),
            state_dir=Path(scratch) / "state",
            dtype=dtype,
            extra_args=("--no-profile",),
        )
        launch = launch_headway(deployment)
        server = Server("headway", deployment=deployment, launch=launch, log_path=Path(scratch) / "server.log")
        try:
            await server.start()
            await server.client.run(WARM_UP)
            await asyncio.sleep(SETTLE_S)
            openmp = openmp_environment(server.processes())
            rounds = []
            for index in range(num_rounds):
                parts = await asyncio.to_thread(
                    time_engine, model_dir, dtype, num_sequences=spec.num_requests, num_steps=num_steps, openmp=openmp
                )
                burst = replace(spec, seed=spec.seed + index)
                rounds.append(Round(parts, await burst_through_stack(server, burst)))
            return rounds
        finally:
            await server.stop()


def time_engine(
    model_dir: Path, dtype: Dtype, *, num_sequences: int, num_steps: int, openmp: Mapping[str, str]
) -> dict[str, float]:
    """Seconds of a step by part, in a process with the worker's OpenMP settings."""
    arguments = (model_dir, dtype, num_sequences, num_steps, openmp.get("OMP_NUM_THREADS", torch.get_num_threads()))
    finished = subprocess.run(
        (sys.executable, "-m", "benchmarks.steps.engine", *map(str, arguments)),
        env=os.environ | openmp,
        check=True,
        stdout=subprocess.PIPE,
    )
    parts: dict[str, float] = json.loads(finished.stdout)
    return parts


def step_table(parts: Mapping[str, float], *, num_sequences: int) -> Table:
    """Time and share of each part, and of everything that is not the model."""
    step_s = sum(parts.values())
    table = Table("part", title=f"a step of {num_sequences} decodes: {format_duration(step_s)}")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    for part in Part:
        table.add_row(part, format_duration(parts.get(part, 0.0)), write_share(parts.get(part, 0.0) / step_s))
    outside = 1 - sum(parts.get(part, 0.0) for part in MODEL_PARTS) / step_s
    table.add_section()
    table.add_row("outside the model", format_duration(outside * step_s), coloured_share(outside))
    table.caption = f"target: less than {write_share(MAX_OUTSIDE_MODEL)} outside the model"
    return table


def cpu_table(cpu_s: Mapping[str, float], *, interval_s: float) -> Table:
    """Who takes the processors while all sequences decode in the stack."""
    total_s = sum(cpu_s.values())
    table = Table("process", title=f"processor time of a step in the stack, one each {format_duration(interval_s)}")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    for name, seconds in sorted(cpu_s.items(), key=lambda item: -item[1]):
        table.add_row(name, format_duration(seconds), write_share(seconds / total_s))
    outside_s = total_s - cpu_s[ARITHMETIC]
    table.add_section()
    table.add_row("outside the model", format_duration(outside_s), coloured_share(outside_s / total_s))
    table.caption = f"target: less than {write_share(MAX_OUTSIDE_MODEL)} outside the model"
    return table


def coloured_share(share: float) -> str:
    """Of what is outside the model."""
    return f"[{'green' if share < MAX_OUTSIDE_MODEL else 'red'}]{write_share(share)}[/]"


if __name__ == "__main__":
    typer.run(main)
