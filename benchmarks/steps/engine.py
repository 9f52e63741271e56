"""Times the parts of decode steps in an engine of its own. Run as a process with the worker's OpenMP settings."""

import json
import time
from pathlib import Path

import torch
import typer

from benchmarks.engine.service import as_group
from benchmarks.serve.workload import WorkloadSpec, make_workload
from benchmarks.steps.part import instrumented
from benchmarks.steps.stopwatch import Stopwatch
from headway.core.request import SamplingParams
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.runner.model_runner import ModelRunner
from headway.store.checkpoint import read_checkpoint

BLOCK_SIZE = 16
MAX_MODEL_LEN = 2048
SEED = 8


def time_parts(model_dir: Path, *, dtype: str, num_sequences: int, num_steps: int) -> dict[str, float]:
    """Seconds by part of one step, the mean over `num_steps` in which all sequences decode."""
    engine = build_engine(model_dir, dtype=dtype, num_sequences=num_sequences)
    # A step for each prompt at most goes by before all of them decode.
    spec = WorkloadSpec(
        num_requests=num_sequences,
        seed=SEED,
        vocab_size=engine.config.vocab_size,
        output_mean=num_sequences + num_steps,
    )
    waiting = set()
    for index, request in enumerate(make_workload(spec)):
        engine.submit_group(as_group(request, str(index), SamplingParams(temperature=0.0)))
        waiting.add(str(index))
    stopwatch = Stopwatch()
    with instrumented(stopwatch):
        while waiting:
            waiting -= {output.request_id for output in engine.step()}
        stopwatch.reset()
        for _ in range(num_steps):
            engine.step()
    return {part: seconds / num_steps for part, seconds in stopwatch.seconds.items()}


def build_engine(model_dir: Path, *, dtype: str, num_sequences: int) -> Engine:
    checkpoint = read_checkpoint(model_dir, dtype=dtype)
    config = EngineConfig(
        num_blocks=num_sequences * MAX_MODEL_LEN // BLOCK_SIZE,
        block_size=BLOCK_SIZE,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=num_sequences,
        max_num_batched_tokens=max(512, num_sequences),
        vocab_size=checkpoint.spec.vocab_size,
        eos_token_ids=checkpoint.eos_token_ids,
    )
    runner = ModelRunner(checkpoint, num_blocks=config.num_blocks, block_size=BLOCK_SIZE)
    return Engine(config, runner=runner, clock=time.perf_counter)


def main(model_dir: Path, dtype: str, num_sequences: int, num_steps: int, threads: int) -> None:
    """Print the seconds by part as JSON."""
    torch.set_num_threads(threads)
    parts = time_parts(model_dir, dtype=dtype, num_sequences=num_sequences, num_steps=num_steps)
    typer.echo(json.dumps(parts))


if __name__ == "__main__":
    typer.run(main)
