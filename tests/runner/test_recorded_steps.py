"""Decode steps that are recorded, and those that are not: the same tokens and log probabilities, to the bit."""

import random
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.request import SamplingParams
from headway.kernels import Recording
from headway.runner.model_runner import ModelRunner
from headway.runner.recorded_steps import RecordedSteps
from tests.checkpoints import make_checkpoint
from tests.models.oracle import random_prompts
from tests.runner.stepper import Stepper

NUM_BLOCKS = 256
GREEDY = SamplingParams(max_tokens=12, temperature=0.0)
MIXED = (
    GREEDY,
    SamplingParams(max_tokens=9, temperature=0.0, num_logprobs=3),
    SamplingParams(max_tokens=15, seed=5, top_p=0.9),
    SamplingParams(max_tokens=5, temperature=0.0),
    SamplingParams(max_tokens=11, seed=8, presence_penalty=1.0),
)


def make_runner(directory: Path) -> ModelRunner:
    return ModelRunner(read_checkpoint(directory), num_blocks=NUM_BLOCKS, max_num_seqs=4, num_threads=2)


def generate(runner: ModelRunner, samplings: tuple[SamplingParams, ...], *, chunk_size: int = 11) -> Stepper:
    """One sequence comes after the other, so that steps have some that decode and some that do not."""
    generator = random.Random(3)
    lengths = tuple(generator.randrange(1, 60) for _ in samplings)
    stepper = Stepper(runner, num_blocks=NUM_BLOCKS, chunk_size=chunk_size)
    for prompt, sampling in zip(random_prompts(512, lengths), samplings, strict=True):
        stepper.add(prompt, sampling)
        stepper.step()
    stepper.run()
    return stepper


def num_runs(runner: ModelRunner, samplings: tuple[SamplingParams, ...], **options: int) -> tuple[Stepper, int]:
    with patch.object(Recording, "run", autospec=True, side_effect=Recording.run) as run:
        stepper = generate(runner, samplings, **options)
    return stepper, run.call_count


@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen2", "mistral"])
def test_replayed_steps_give_the_bits_of_launched_ones(tmp_path: Path, family: str) -> None:
    runner = make_runner(make_checkpoint(tmp_path, family))
    recorded, count = num_runs(runner, MIXED[:4])
    assert count >= 10
    with patch.object(RecordedSteps, "replay", return_value=None):
        launched, count = num_runs(runner, MIXED[:4])
    assert count == 0
    assert [sequence.token_ids for sequence in recorded.sequences] == [
        sequence.token_ids for sequence in launched.sequences
    ]
    assert recorded.logprobs == launched.logprobs


def test_more_sequences_than_there_is_room_for_are_launched(tmp_path: Path) -> None:
    runner = make_runner(make_checkpoint(tmp_path, "llama"))
    alone = [generate(runner, (GREEDY,)).sequences[0].token_ids]
    together, count = num_runs(runner, (GREEDY,) * 5)
    assert count < 12, "five at once are one too many"
    assert [together.sequences[0].token_ids] == alone


@pytest.mark.parametrize("family", ["opt", "gpt2", "mixtral"])
def test_a_model_that_is_not_our_kernels_alone_is_launched(tmp_path: Path, family: str) -> None:
    runner = make_runner(make_checkpoint(tmp_path, family))
    stepper, count = num_runs(runner, (GREEDY, GREEDY))
    assert count == 0
    assert all(sequence.num_output_tokens == 12 for sequence in stepper.sequences)


def test_chunks_of_one_token_take_part(tmp_path: Path) -> None:
    runner = make_runner(make_checkpoint(tmp_path, "llama"))
    whole = generate(runner, (GREEDY, GREEDY), chunk_size=100)
    token_by_token, count = num_runs(runner, (GREEDY, GREEDY), chunk_size=1)
    assert count >= 24
    assert [sequence.token_ids for sequence in token_by_token.sequences] == [
        sequence.token_ids for sequence in whole.sequences
    ]


def test_another_number_of_threads_is_another_recording(tmp_path: Path) -> None:
    runner = make_runner(make_checkpoint(tmp_path, "llama"))
    expected = generate(runner, (GREEDY,)).sequences[0].token_ids
    torch.set_num_threads(1)
    assert generate(runner, (GREEDY,)).sequences[0].token_ids == expected


def test_measured_steps_are_replayed_too(tmp_path: Path) -> None:
    runner = make_runner(make_checkpoint(tmp_path, "llama"))
    with patch.object(Recording, "run", autospec=True, side_effect=Recording.run) as run:
        assert runner.measure(prefill_tokens=0, num_decodes=3, context_tokens=40) > 0
    assert run.call_count == 2
