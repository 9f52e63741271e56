"""Paging against contiguous preallocation in the same engine: wasted KV memory, and the request rate it sustains."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from typer import Option

from benchmarks.engine.dataset import DATASETS
from benchmarks.engine.latency import measure_latency
from benchmarks.model import DEFAULT_DIRECTORY, make_benchmark_model
from benchmarks.serve.report import RESULTS_DIR, write_result
from benchmarks.waste.hardware import Source, a100_latency
from benchmarks.waste.measurement import Load, compare_policies
from benchmarks.waste.report import draw, rate_table, use_table
from headway.checkpoint.model_directory import read_checkpoint
from headway.engine.config import EngineConfig
from headway.runner.model_runner import ModelRunner

MAX_MODEL_LEN = 2048

console = Console()


def main(
    *,
    lifetimes: Annotated[float, Option(min=1, help="Length of each trace, in times of a mean request alone.")] = 60,
    pool_tokens: Annotated[int, Option(min=MAX_MODEL_LEN, help="KV slots; the default is OPT-13B's.")] = 15_700,
    block_size: Annotated[int, Option(min=1, help="Tokens in a KV block.")] = 16,
    latency_of: Annotated[Source, Option(help="This machine's step times, or an A100's.")] = Source.HERE,
    bound: Annotated[float, Option(min=1.1, help="Normalised latency allowed, in time of a token alone.")] = 5.0,
    threads: Annotated[int, Option(min=1, help="CPU threads that compute.")] = 2,
    real: Annotated[bool, Option("--real", help="Run the real model at the rates found, too.")] = False,
    real_requests: Annotated[int, Option(min=10, help="Requests of each real run.")] = 60,
    model_dir: Annotated[Path, Option(help="Benchmark model, made if absent.")] = DEFAULT_DIRECTORY,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "",
) -> None:
    """Load the real engine on a simulated clock that goes by measured, or estimated, step times."""
    if real and latency_of is not Source.HERE:
        raise typer.BadParameter("--real runs the model that is measured here")
    name = name or f"waste-{latency_of}"
    torch.set_num_threads(threads)
    checkpoint = read_checkpoint(make_benchmark_model(model_dir))
    config = EngineConfig(
        num_blocks=pool_tokens // block_size,
        block_size=block_size,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=256,
        max_num_batched_tokens=512,
        enable_prefix_cache=False,
        vocab_size=checkpoint.spec.vocab_size,
    )
    runner = ModelRunner(checkpoint, num_blocks=config.num_blocks, block_size=block_size)
    latency = measure_latency(runner, config) if latency_of is Source.HERE else a100_latency()
    token_s = latency.decode_s(num_decodes=1, context_tokens=0)
    bound_s = bound * token_s
    console.print(f"one token alone takes {1e3 * token_s:.1f} ms; {latency}")
    load = Load(
        config=config,
        latency=latency,
        bound_s=bound_s,
        num_lifetimes=lifetimes,
        num_real_requests=real_requests if real else 0,
    )
    findings = []
    for dataset in DATASETS:
        for found in compare_policies(load, dataset, runner):
            findings.append(found)
            console.print(f"{dataset.name}, {found.policy}: {found.rate_per_s:.2f} requests/s")
    console.print(use_table(findings))
    console.print(rate_table(findings, bound_s=bound_s))
    console.print(f"drawn to {draw(findings, bound_s=bound_s, name=name)}")
    document = {
        "latency_of": latency_of,
        "latency": asdict(latency),
        "bound_s": bound_s,
        "findings": [asdict(found) for found in findings],
    }
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")


if __name__ == "__main__":
    typer.run(main)
