"""A worker's steps on the CUDA kernels, emulated: models against transformers, replays against single launches."""

from array import array
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.request import BeamSearch, SamplingParams
from headway.engine.batch import StepBatch
from headway.engine.sequence import Sequence
from headway.kernels.cuda.kernels import CudaKernels
from headway.kernels.cuda.step import GpuKernels
from headway.kernels.dispatch import kernels_for
from headway.models import grouped_experts
from headway.runner.gpu_draw import choose_tokens
from headway.runner.model_runner import ModelRunner
from headway.runner.row import Row
from headway.runner.sampler import Sampler
from headway.runner.step_graphs import CudaGraph
from tests.checkpoints import make_checkpoint
from tests.models.oracle import check_against_transformers, random_prompts
from tests.runner.rerun import Rerun
from tests.runner.stepper import Stepper
from tests.worker.workload import generate, make_group

SAMPLING = SamplingParams(max_tokens=4, temperature=0.0, num_logprobs=3)


@pytest.mark.parametrize(
    ("family", "overrides"),
    [("qwen3", {}), ("mistral", {"sliding_window": 24, "head_dim": 32})],
    ids=["qwen3", "mistral, window"],
)
def test_models_equal_transformers(
    tmp_path: Path, emulated_gpu: None, family: str, overrides: dict[str, object]
) -> None:
    """In steps of prompts, of both, and of decodes, which are replayed."""
    capture = Rerun()
    directory = make_checkpoint(tmp_path, family, **overrides)
    check_against_transformers(directory, chunk_size=23, max_tokens=6, capture=capture)
    assert capture.num_captured == 4
    assert capture.num_replays > 0


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model"), "llama")


def make_stepper(directory: Path, *, capture: CudaGraph | None = None) -> Stepper:
    runner = ModelRunner(
        read_checkpoint(directory), num_blocks=64, num_host_blocks=8, max_num_seqs=9, capture=capture, num_threads=1
    )
    return Stepper(runner, num_blocks=64)


@pytest.mark.parametrize("num_sequences", [3, 5, 9])
def test_a_padded_replay_gives_what_single_launches_give(
    directory: Path, emulated_gpu: None, num_sequences: int
) -> None:
    """Bit for bit: the padding takes no part in how the keys are cut."""
    capture, results = Rerun(), []
    for stepper in (make_stepper(directory), make_stepper(directory, capture=capture)):
        for prompt in random_prompts(512, tuple(range(3, 60, 6))[:num_sequences]):
            stepper.add(prompt, SAMPLING)
        results.append((stepper.run(), stepper.logprobs))
    assert results[0] == results[1]
    assert capture.num_replays == SAMPLING.max_tokens - 1


def test_a_batch_beyond_the_largest_graph_is_launched_by_itself(directory: Path, emulated_gpu: None) -> None:
    capture = Rerun()
    stepper = make_stepper(directory, capture=capture)
    prompts = random_prompts(512, (5,) * 10)
    for prompt in prompts:
        stepper.add(prompt, SAMPLING)
    together = stepper.run()
    assert capture.num_replays == 0
    alone = make_stepper(directory, capture=capture)
    alone.add(prompts[9], SAMPLING)
    assert alone.run() == together[9:]


@pytest.mark.parametrize(
    ("step", "num_captured", "num_replays"),
    [
        ({"prefill_tokens": 0, "num_decodes": 3, "context_tokens": 300}, 1, 2),
        ({"prefill_tokens": 0, "num_decodes": 10, "context_tokens": 30}, 0, 0),
        ({"prefill_tokens": 8, "num_decodes": 3, "context_tokens": 30}, 0, 0),
    ],
    ids=["decodes", "beyond the largest", "with a prompt"],
)
def test_steps_are_measured_as_they_are_taken(
    directory: Path, emulated_gpu: None, step: dict[str, int], num_captured: int, num_replays: int
) -> None:
    capture = Rerun()
    runner = ModelRunner(read_checkpoint(directory), num_blocks=8, max_num_seqs=9, capture=capture, num_threads=1)
    before = capture.num_captured
    assert runner.measure(**step) > 0
    assert (capture.num_captured - before, capture.num_replays) == (num_captured, num_replays)


@pytest.mark.parametrize(
    "limits",
    [
        {"num_blocks": 64},
        {"num_blocks": 13, "block_size": 8, "preemption": "swap", "num_host_blocks": 20},
        {"max_num_batched_tokens": 20},
    ],
    ids=["roomy", "swap", "chunks"],
)
def test_steps_that_are_launched_behind_one_another_give_what_single_steps_give(
    directory: Path, emulated_gpu: None, limits: dict[str, object]
) -> None:
    """Replayed and not, with tokens that go from one step to the next on the device only."""
    kinds: list[dict[str, object]] = [
        {"temperature": 0.0, "num_logprobs": 1},
        {"temperature": 0.9, "top_k": 30, "seed": 3, "min_tokens": 4, "logit_bias": ((9, 2.0),)},
        {"temperature": 1.0, "seed": 4, "stop_token_ids": tuple(range(0, 512, 9))},
    ]
    groups = [
        make_group(f"{number}", prompt, SamplingParams(**{"max_tokens": 14 + 3 * number, **kinds[number % 3]}))
        for number, prompt in enumerate(random_prompts(512, (3, 40, 17, 9, 30)))
    ]
    checkpoint, capture = read_checkpoint(directory), Rerun()
    plain = generate(checkpoint, groups, max_num_seqs=9)
    ahead = generate(checkpoint, groups, capture=capture, runs_ahead=True, max_num_seqs=9, **limits)
    assert capture.num_replays > 0
    assert (ahead.stats.num_swaps > 0) == ("num_host_blocks" in limits)
    for name, answer in plain.answers.items():
        assert ahead.answers[name].token_ids == answer.token_ids
        logprobs = [entry.logprob for entry in answer.logprobs]
        assert [entry.logprob for entry in ahead.answers[name].logprobs] == pytest.approx(logprobs, abs=1e-5)


def test_blocks_that_were_copied_and_swapped_are_read_as_before(directory: Path, emulated_gpu: None) -> None:
    prompt = random_prompts(512, (40,))[0]
    stayed, moved = make_stepper(directory), make_stepper(directory, capture=Rerun())
    stayed.add(prompt, SAMPLING)
    sequence = moved.add(prompt, SAMPLING)
    moved.step()
    old, between = sequence.block_table, [moved.take_block() for _ in sequence.block_table]
    sequence.block_table = array("i", [moved.take_block() for _ in old])
    host = range(len(old))
    moved.copy(StepBatch([], 0, swap_out=list(zip(old, host, strict=True))))
    moved.copy(
        StepBatch(
            [],
            0,
            swap_in=list(zip(host, between, strict=True)),
            block_copies=list(zip(between, sequence.block_table, strict=True)),
        )
    )
    assert moved.run() == stayed.run()
    assert moved.logprobs == stayed.logprobs


def test_tokens_are_those_of_the_sampler_on_the_cpu(host: CudaKernels) -> None:
    host.set_schedule(0)
    params = [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.7, top_k=40, top_p=0.9, seed=(1 << 64) - 3),
        SamplingParams(temperature=1.3, min_p=0.05, seed=5),
        SamplingParams(temperature=1.0, beam=BeamSearch(width=2)),
    ]
    rows = [Row(Sequence("request", [1, 2, 3, 4], 3, sampling, arrival_s=0.0)) for sampling in params]
    logits = torch.randn(4, 700, generator=torch.Generator().manual_seed(2)) * 2
    samples = Sampler().start_rows(logits.clone(), rows).finish()
    drawn = choose_tokens(logits, rows).tolist()
    assert [(token,) for token in drawn[:3]] == [sample.token_ids for sample in samples[:3]]


def test_a_gpu_gets_the_cuda_kernels() -> None:
    with FakeTensorMode():
        assert isinstance(kernels_for(torch.empty(1, device="cuda")), GpuKernels)
    assert not isinstance(kernels_for(torch.empty(1)), GpuKernels)


@pytest.fixture
def grouped(emulated_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU multiplies the rows of all experts at once."""
    monkeypatch.setattr(grouped_experts, "_has_grouped_products", lambda device: True)


@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe"])
def test_mixtures_of_experts_are_replayed_and_launched_ahead(tmp_path: Path, grouped: None, family: str) -> None:
    directory = make_checkpoint(tmp_path, family)
    checkpoint, capture = read_checkpoint(directory, dtype="bfloat16"), Rerun()
    sampling = SamplingParams(max_tokens=10, temperature=0.0)
    groups = [make_group(f"{n}", prompt, sampling) for n, prompt in enumerate(random_prompts(512, (3, 40, 17)))]
    plain = generate(checkpoint, groups, max_num_seqs=4)
    ahead = generate(checkpoint, groups, capture=capture, runs_ahead=True, max_num_seqs=4)
    assert capture.num_replays > 0
    for name, answer in plain.answers.items():
        assert ahead.answers[name].token_ids == answer.token_ids
