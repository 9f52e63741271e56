"""Times the parts of decode steps in an engine of its own. Run as a process with the worker's OpenMP settings."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
import typer

from benchmarks.engine.service import as_group
from benchmarks.serve.workload import Request, WorkloadSpec, make_workload
from benchmarks.steps.part import NOBODY, instrumented
from benchmarks.steps.stopwatch import Stopwatch
from headway.checkpoint.model_directory import read_checkpoint
from headway.core.request import SamplingParams
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.runner.model_runner import ModelRunner

BLOCK_SIZE = 16
MAX_MODEL_LEN = 2048
SEEDS = (8, 9)
SPARE_BLOCKS = 8


def time_parts(model_dir: Path, *, dtype: str, num_sequences: int, num_steps: int) -> dict[str, float]:
    """Seconds by part of one step, the mean over `num_steps` in which all sequences decode.

    A first workload goes through the same pool before: the system has given it all of its memory by then.
    """
    # A step for each prompt at most goes by before all of them decode.
    specs = [
        WorkloadSpec(num_requests=num_sequences, seed=seed, output_mean=num_sequences + num_steps) for seed in SEEDS
    ]
    first, second = map(make_workload, specs)
    engine = build_engine(model_dir, dtype=dtype, requests=first)
    submit(engine, first)
    while engine.has_work:
        engine.step()
    waiting = submit(engine, second)
    stopwatch = Stopwatch()
    with instrumented(stopwatch):
        while waiting:
            waiting -= {output.request_id for output in engine.step()}
        stopwatch.reset()
        for _ in range(num_steps):
            engine.step()
    return {part: seconds / num_steps for part, seconds in stopwatch.seconds.items() if part != NOBODY}


def submit(engine: Engine, requests: Sequence[Request]) -> set[str]:
    """Submits the requests; returns their ids."""
    ids = set()
    for index, request in enumerate(requests):
        prompt = [token_id % engine.config.vocab_size for token_id in request.prompt_token_ids]
        known = replace(request, prompt_token_ids=tuple(prompt))
        engine.submit_group(as_group(known, str(index), SamplingParams(temperature=0.0)))
        ids.add(str(index))
    return ids


def build_engine(model_dir: Path, *, dtype: str, requests: Sequence[Request]) -> Engine:
    """Builds an engine with blocks for the requests."""
    checkpoint = read_checkpoint(model_dir, dtype=dtype)
    lengths = [len(request.prompt_token_ids) + request.num_output_tokens for request in requests]
    config = EngineConfig(
        num_blocks=sum(-(-length // BLOCK_SIZE) + SPARE_BLOCKS for length in lengths),
        block_size=BLOCK_SIZE,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=len(requests),
        max_num_batched_tokens=max(512, len(requests)),
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
