"""Steps of the whole engine on a GPU: each after the tokens of the one before, and launched ahead of them."""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.kernels.timings import EngineTiming
from benchmarks.model import make_benchmark_model
from headway.checkpoint.model_directory import read_checkpoint
from headway.core.model import ModelFamily, ModelSpec, RopeSpec
from headway.core.request import GenerationRequest, SamplingParams
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.runner.cuda_graph import TorchCudaGraph
from headway.runner.model_runner import ModelRunner

# Of the shape of Llama 3.2 1B but for its vocabulary: a step is so short that the host's work beside it counts.
SPEC = ModelSpec(
    family=ModelFamily.LLAMA,
    architecture="LlamaForCausalLM",
    vocab_size=32_000,
    hidden_size=2048,
    num_layers=16,
    num_heads=32,
    num_kv_heads=8,
    head_dim=64,
    intermediate_size=8192,
    max_position=4096,
    dtype="float32",
    activation="silu",
    norm_eps=1e-5,
    rope=RopeSpec(theta=500_000.0, rotary_dim=64),
    eos_token_ids=(2,),
)
DIRECTORY = Path("build/models/bench-llama-1b")
BATCH_SIZES = (1, 64)
PROMPT_TOKENS, NUM_STEPS, NUM_BLOCKS = 512, 200, 4096


def engine_timings() -> Iterator[EngineTiming]:
    directory = make_benchmark_model(DIRECTORY, spec=SPEC)
    waiting, ahead = _steps_us(directory, runs_ahead=False), _steps_us(directory, runs_ahead=True)
    for batch_size in BATCH_SIZES:
        yield EngineTiming(batch_size, waiting_us=waiting[batch_size], ahead_us=ahead[batch_size])


def _steps_us(directory: Path, *, runs_ahead: bool) -> dict[int, float]:
    """Times steps, in microseconds by batch size."""
    config = EngineConfig(
        num_blocks=NUM_BLOCKS, max_model_len=SPEC.max_position, max_num_batched_tokens=8192, runs_ahead=runs_ahead
    )
    runner = ModelRunner(
        read_checkpoint(directory, dtype="bfloat16"),
        num_blocks=NUM_BLOCKS,
        max_num_seqs=config.max_num_seqs,
        device="cuda",
        capture=TorchCudaGraph(torch.device("cuda")),
        runs_ahead=runs_ahead,
    )
    engine = Engine(config, runner=runner, clock=time.perf_counter)
    return {batch_size: _step_us(engine, batch_size) for batch_size in BATCH_SIZES}


def _step_us(engine: Engine, batch_size: int) -> float:
    sampling = SamplingParams(max_tokens=NUM_STEPS + 20, ignore_eos=True)
    for number in range(batch_size):
        prompt = tuple((number * 7919 + position) % SPEC.vocab_size for position in range(PROMPT_TOKENS))
        engine.submit(GenerationRequest(request_id=str(number), model="m", prompt_token_ids=prompt, sampling=sampling))
    while engine.stats().num_decode_tokens < batch_size:
        engine.step()
    times = []
    for _ in range(NUM_STEPS):
        started_s = time.perf_counter()
        engine.step()
        times.append((time.perf_counter() - started_s) * 1e6)
    while engine.has_work:
        engine.step()
    return statistics.median(times)
