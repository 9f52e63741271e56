"""A decode step of a model with the shape of Llama 3 8B, weights at random, as a worker takes it on a GPU."""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch

from benchmarks.kernels.batch import BLOCK_SIZE
from benchmarks.kernels.stopwatch import REPEATS, median_behind_us
from benchmarks.kernels.timings import StepTiming
from headway.core.model import ModelFamily, ModelSpec, RopeSpec
from headway.core.parallel_config import Span
from headway.core.shard import whole
from headway.models.layout import alone
from headway.models.model import Model
from headway.models.registry import build_model
from headway.runner.cuda_graph import TorchCudaGraph
from headway.runner.forward import Forward
from headway.runner.inputs import StepInput, Windows, flatten
from headway.runner.kv_pool import KvPool
from headway.runner.step_message import ModelInput
from headway.runner.synthetic import synthetic_batch

SPEC = ModelSpec(
    family=ModelFamily.LLAMA,
    architecture="LlamaForCausalLM",
    vocab_size=128_256,
    hidden_size=4096,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    intermediate_size=14336,
    max_position=8192,
    dtype="bfloat16",
    activation="silu",
    norm_eps=1e-5,
    rope=RopeSpec(theta=500_000.0, rotary_dim=128),
)
BATCH_SIZES = (1, 64)
CONTEXT_TOKENS = 1024


@torch.inference_mode()
def model_timings() -> Iterator[StepTiming]:
    device = torch.device("cuda")
    model = _random_model(device)
    windows: Windows = frozenset((None,))
    forward = Forward(
        model, spec=SPEC, shard=whole(SPEC), windows=windows, max_num_seqs=max(BATCH_SIZES), device=device
    )
    steps = {batch_size: _step(batch_size) for batch_size in BATCH_SIZES}
    num_blocks = max(num_blocks for _, num_blocks in steps.values())
    pool = KvPool(SPEC, num_blocks=num_blocks, block_size=BLOCK_SIZE, device=device)
    pool.memory.normal_()
    graphs = forward.capture(
        pool.layers, TorchCudaGraph(device), block_size=BLOCK_SIZE, max_num_blocks=SPEC.max_position // BLOCK_SIZE
    )
    for batch_size, (model_input, _) in steps.items():
        own = Span(0, batch_size)
        step = StepInput.of(model_input, block_size=BLOCK_SIZE)

        def replay(model_input: ModelInput = model_input) -> torch.Tensor:
            replayed = graphs.replay(model_input)
            assert replayed is not None, "decode steps of these sizes were captured"
            return replayed.hidden

        def launch(step: StepInput = step, own: Span = own) -> torch.Tensor:
            return forward.run(step, pool.layers, own=own)

        embedding_bytes = SPEC.vocab_size * SPEC.hidden_size * SPEC.dtype_bytes  # of which a step reads a few rows
        weight_bytes = SPEC.num_parameters * SPEC.dtype_bytes - embedding_bytes
        yield StepTiming(
            batch_size,
            weight_bytes + int(step.seq_lens.sum()) * SPEC.kv_bytes_per_token,
            replayed_us=_step_us(model, replay),
            launched_us=_step_us(model, launch),
            device_us=median_behind_us(partial(_tokens, model, replay)),
        )


def _random_model(device: torch.device) -> Model:
    model = build_model(SPEC, layout=alone(SPEC), device=device)
    for parts in model.tensors().values():
        for part in parts:
            part.view.normal_(std=0.02)
    for linear in model.linears():
        linear.pack()
    return model


def _step(batch_size: int) -> tuple[ModelInput, int]:
    batch, num_blocks = synthetic_batch(
        SPEC.vocab_size,
        block_size=BLOCK_SIZE,
        bytes_per_block=SPEC.kv_bytes_per_token * BLOCK_SIZE,
        prefill_tokens=0,
        num_decodes=batch_size,
        context_tokens=CONTEXT_TOKENS,
    )
    return flatten(batch, block_size=BLOCK_SIZE), num_blocks


def _step_us(model: Model, hidden_of: Callable[[], torch.Tensor]) -> float:
    times = []
    for _ in range(REPEATS):
        started_s = time.perf_counter()
        _tokens(model, hidden_of).tolist()
        times.append((time.perf_counter() - started_s) * 1e6)
    return statistics.median(times)


def _tokens(model: Model, hidden_of: Callable[[], torch.Tensor]) -> torch.Tensor:
    logits = model.compute_logits(hidden_of())
    assert logits is not None, "the model is whole"
    return logits.argmax(dim=1)
