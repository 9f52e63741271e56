"""A worker's steps on a GPU: captured graphs against single launches, and blocks that travel beside other work."""

import logging
import time
from array import array
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.infer import InferSequence
from headway.core.request import SamplingParams
from headway.engine.batch import StepBatch
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.kernels.cuda import build, copy_blocks, swap_blocks
from headway.runner.cuda_graph import TorchCudaGraph, launches_whole_steps
from headway.runner.encoder_runner import EncoderRunner
from headway.runner.model_runner import ModelRunner
from tests.checkpoints import FAMILIES, make_checkpoint
from tests.encoders import make_encoder
from tests.models.oracle import random_prompts
from tests.runner.stepper import Stepper
from tests.worker.workload import generate, make_group

if not torch.cuda.is_available():
    pytest.skip("not run: there is no GPU here", allow_module_level=True)
if not build.is_current():
    pytest.skip("not run: the CUDA kernels are not compiled (`make cuda`)", allow_module_level=True)

DEVICE = torch.device("cuda")
SAMPLING = SamplingParams(max_tokens=20, temperature=0.0)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model"), "llama")


def make_stepper(directory: Path, *, dtype: str, device: str = "cuda", is_captured: bool = False) -> Stepper:
    runner = ModelRunner(
        read_checkpoint(directory, dtype=dtype),
        num_blocks=256,
        num_host_blocks=16,
        max_num_seqs=20,
        device=device,
        capture=TorchCudaGraph(DEVICE) if is_captured else None,
    )
    return Stepper(runner, num_blocks=256)


def outputs_of(stepper: Stepper, *, num_sequences: int) -> list[list[int]]:
    for prompt in random_prompts(512, tuple(range(3, 100, 5))[:num_sequences]):
        stepper.add(prompt, SAMPLING)
    return stepper.run()


@pytest.mark.parametrize(
    ("dtype", "num_sequences"),
    [("float32", 1), ("float32", 3), ("float32", 17), ("float32", 20), ("bfloat16", 20), ("float16", 20)],
)
def test_a_replayed_graph_gives_what_single_launches_give(directory: Path, dtype: str, num_sequences: int) -> None:
    """In 16 bits without padding only: the product of a padded batch may be another one, and rounds otherwise."""
    launched = outputs_of(make_stepper(directory, dtype=dtype), num_sequences=num_sequences)
    replayed = outputs_of(make_stepper(directory, dtype=dtype, is_captured=True), num_sequences=num_sequences)
    assert replayed == launched


KINDS: list[dict[str, object]] = [
    {"temperature": 0.0, "num_logprobs": 2},
    {"temperature": 0.9, "top_k": 30, "top_p": 0.9, "seed": 3, "min_tokens": 4, "logit_bias": ((9, 2.0),)},
    {"temperature": 1.0, "seed": 4, "stop_token_ids": tuple(range(0, 512, 9))},
]


@pytest.mark.parametrize("is_captured", [True, False], ids=["replayed", "launched"])
def test_steps_that_are_launched_behind_one_another_give_what_single_steps_give(
    directory: Path, is_captured: bool
) -> None:
    groups = [
        make_group(f"{number}", prompt, SamplingParams(**{"max_tokens": 20 + 3 * number, **KINDS[number % 3]}))
        for number, prompt in enumerate(random_prompts(512, tuple(range(3, 90, 7))))
    ]
    checkpoint = read_checkpoint(directory, dtype="float32")
    plain, ahead = (
        generate(
            checkpoint,
            groups,
            device="cuda",
            capture=TorchCudaGraph(DEVICE) if is_captured else None,
            runs_ahead=runs_ahead,
            max_num_seqs=20,
            max_num_batched_tokens=60,
        )
        for runs_ahead in (False, True)
    )
    for name, answer in plain.answers.items():
        assert ahead.answers[name].token_ids == answer.token_ids


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("is_captured", [True, False], ids=["replayed", "launched"])
@pytest.mark.parametrize("sampling", KINDS, ids=["logprobs", "drawn", "stopped"])
def test_nothing_waits_for_the_device_while_a_step_is_launched(
    directory: Path, sampling: dict[str, object], is_captured: bool
) -> None:
    config = EngineConfig(num_blocks=64, max_model_len=256, max_num_seqs=4, runs_ahead=True)
    runner = ModelRunner(
        read_checkpoint(directory, dtype="bfloat16"),
        num_blocks=64,
        max_num_seqs=4,
        device="cuda",
        capture=TorchCudaGraph(DEVICE) if is_captured else None,
        runs_ahead=True,
    )
    engine = Engine(config, runner=runner, clock=time.perf_counter)
    always = {"max_tokens": 30, "min_tokens": 25, "ignore_eos": True}
    params = [SamplingParams(**{**sampling, **always, "seed": seed}) for seed in range(3)]
    engine.submit_group(make_group("a", list(range(20)), *params))
    for _ in range(4):
        engine.step()
    start = runner.start

    def start_without_waiting(batch: StepBatch) -> None:
        torch.cuda.set_sync_debug_mode("error")
        try:
            start(batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    runner.start = start_without_waiting  # type: ignore[method-assign]
    for _ in range(10):
        engine.step()


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_the_cpu(tmp_path: Path, family: str) -> None:
    directory = make_checkpoint(tmp_path, family)
    is_captured = launches_whole_steps(read_checkpoint(directory, dtype="float32").spec, DEVICE)
    on_gpu = outputs_of(make_stepper(directory, dtype="float32", is_captured=is_captured), num_sequences=7)
    assert on_gpu == outputs_of(make_stepper(directory, dtype="float32", device="cpu"), num_sequences=7)


@pytest.mark.parametrize("family", [family for family in FAMILIES if "moe" in family or family == "mixtral"])
def test_experts_of_a_captured_step_give_what_launches_give(tmp_path: Path, family: str) -> None:
    directory = make_checkpoint(tmp_path, family)
    launched = outputs_of(make_stepper(directory, dtype="bfloat16"), num_sequences=20)
    assert outputs_of(make_stepper(directory, dtype="bfloat16", is_captured=True), num_sequences=20) == launched


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_vectors_are_those_of_the_cpu(tmp_path: Path, family: str) -> None:
    checkpoint = read_checkpoint(make_encoder(tmp_path, family), dtype="float32")
    batch = [InferSequence(token_ids=tuple(prompt)) for prompt in random_prompts(400, (3, 40, 100))]
    vectors, expected = (
        [np.frombuffer(vector, "<f4") for vector in EncoderRunner(checkpoint, device=device).execute(batch)]
        for device in ("cuda", "cpu")
    )
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-4)


def test_the_log_says_what_capturing_took(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        make_stepper(directory, dtype="bfloat16", is_captured=True)
    assert "captured 6 graphs of decode steps, up to 20 sequences" in caplog.text


def test_blocks_that_were_copied_and_swapped_are_read_as_before(directory: Path) -> None:
    prompt = random_prompts(512, (90,))[0]
    stayed = make_stepper(directory, dtype="bfloat16", is_captured=True)
    moved = make_stepper(directory, dtype="bfloat16", is_captured=True)
    stayed.add(prompt, SAMPLING)
    sequence = moved.add(prompt, SAMPLING)
    moved.step()
    old, between = sequence.block_table, [moved.take_block() for _ in sequence.block_table]
    sequence.block_table = array("i", [moved.take_block() for _ in old])
    out = list(zip(old, range(len(old)), strict=True))
    back = list(zip(range(len(old)), between, strict=True))
    within = list(zip(between, sequence.block_table, strict=True))
    moved.copy(StepBatch([], 0, swap_out=out))
    moved.copy(StepBatch([], 0, swap_in=back, block_copies=within))
    assert moved.run() == stayed.run()


def test_copies_keep_to_the_order_of_their_stream() -> None:
    memory = torch.randn(4, 2, 60, 8, 16, 128, device=DEVICE)
    host_memory = torch.zeros(20, 4, 2, 8, 16, 128).pin_memory()
    before, stream = memory.clone(), torch.cuda.Stream()
    numbers = torch.arange(20)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        copy_blocks(memory, pairs=torch.stack((numbers, numbers + 40), dim=1).to(DEVICE))
        swap_blocks(memory, host_memory, pairs=torch.stack((numbers + 40, numbers), dim=1), is_out=True)
        memory[:, :, 20:40].zero_()
        swap_blocks(memory, host_memory, pairs=torch.stack((numbers, numbers + 20), dim=1), is_out=False)
    stream.synchronize()
    for first in (0, 20, 40):
        assert torch.equal(memory[:, :, first : first + 20], before[:, :, :20])
