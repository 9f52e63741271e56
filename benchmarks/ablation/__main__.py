"""Measures what block sizes from 1 to 256 cost, and swapping against recomputation, and what each does to latency."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from typer import Option

from benchmarks.ablation.kernel import attention_s, measure_costs
from benchmarks.ablation.report import block_size_table, draw, preemption_table
from benchmarks.ablation.service import Bench, compare_block_sizes
from benchmarks.engine.latency import measure_latency
from benchmarks.model import DEFAULT_DIRECTORY, make_benchmark_model
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.checkpoint.model_directory import Checkpoint, read_checkpoint
from headway.core.latency import LatencyModel
from headway.engine.config import EngineConfig
from headway.runner.model_runner import ModelRunner

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
REFERENCE_SIZE = 16
MAX_MODEL_LEN = 2048
NUM_DECODES = 64

console = Console()


def main(
    *,
    lifetimes: Annotated[float, Option(min=1, help="Length of each trace, in times of a mean request alone.")] = 40,
    pool_tokens: Annotated[int, Option(min=MAX_MODEL_LEN, help="KV slots, as OPT-13B's.")] = 15_700,
    small_pool_tokens: Annotated[int, Option(min=MAX_MODEL_LEN, help="KV slots where sequences give way.")] = 6_000,
    context: Annotated[int, Option(min=16, help="Tokens of each of 64 sequences that attend.")] = 512,
    swapped: Annotated[int, Option(min=16, max=1024, help="Tokens of a sequence that gives way.")] = 512,
    threads: Annotated[int, Option(min=1, help="CPU threads that compute.")] = 2,
    model_dir: Annotated[Path, Option(help="Benchmark model, made if absent.")] = DEFAULT_DIRECTORY,
    name: Annotated[str, Option(help="The result goes to benchmarks/results/NAME.json.")] = "ablation",
) -> None:
    """Measure what depends on the block size, and serve the datasets' lengths with it on a simulated clock."""
    torch.set_num_threads(threads)
    checkpoint = read_checkpoint(make_benchmark_model(model_dir))
    costs = [
        measure_costs(checkpoint, size, num_sequences=NUM_DECODES, context_tokens=context, swapped_tokens=swapped)
        for size in BLOCK_SIZES
    ]
    contiguous_s = attention_s(checkpoint.spec, context, num_sequences=NUM_DECODES, context_tokens=context)
    reference = costs[BLOCK_SIZES.index(REFERENCE_SIZE)]
    latency = measure_reference(checkpoint)
    roomy = Bench(
        latency=latency,
        attention_s=reference.attention_s,
        num_slots=pool_tokens,
        max_model_len=MAX_MODEL_LEN,
        swapped_tokens=swapped,
        num_lifetimes=lifetimes,
    )
    tight = replace(roomy, num_slots=small_pool_tokens)
    findings = []
    for found in compare_block_sizes(costs, reference=reference, roomy=roomy, tight=tight):
        findings.append(found)
        console.print(f"block size {found.costs.block_size}: served")
    console.print(block_size_table(findings, contiguous_s=contiguous_s))
    console.print(preemption_table(findings, swapped_tokens=swapped))
    console.print(f"drawn to {draw(findings, contiguous_s=contiguous_s, name=name)}")
    document = {
        "latency": asdict(latency),
        "contiguous_attention_s": contiguous_s,
        "findings": [asdict(found) for found in findings],
    }
    console.print(f"written to {write_result(RESULTS_DIR / f'{name}.json', document)}")


def measure_reference(checkpoint: Checkpoint) -> LatencyModel:
    """Step times at the reference block size."""
    config = EngineConfig(
        num_blocks=NUM_DECODES * MAX_MODEL_LEN // REFERENCE_SIZE,
        block_size=REFERENCE_SIZE,
        max_model_len=MAX_MODEL_LEN,
        max_num_batched_tokens=512,
    )
    return measure_latency(ModelRunner(checkpoint, num_blocks=1, block_size=REFERENCE_SIZE), config)


if __name__ == "__main__":
    typer.run(main)
