"""Compares a runner with `transformers`, token for token and log probability for log probability."""

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.request import SamplingParams, TokenLogprobs
from headway.runner.model_runner import ModelRunner
from headway.runner.step_graphs import CudaGraph
from tests.runner.stepper import Stepper

PROMPT_LENGTHS = (1, 2, 15, 16, 17, 33, 70)
NUM_BLOCKS = 128
TOLERANCE = 1e-4


def load_runner(directory: Path, *, block_size: int = 16, capture: CudaGraph | None = None) -> ModelRunner:
    checkpoint = read_checkpoint(directory)
    return ModelRunner(
        checkpoint,
        num_blocks=NUM_BLOCKS,
        block_size=block_size,
        max_num_seqs=len(PROMPT_LENGTHS),
        capture=capture,
        num_threads=1,
    )


def random_prompts(vocab_size: int, lengths: tuple[int, ...] = PROMPT_LENGTHS) -> list[list[int]]:
    generator = random.Random(7)
    return [[generator.randrange(vocab_size) for _ in range(length)] for length in lengths]


def check_against_transformers(
    directory: Path, *, chunk_size: int = 10_000, max_tokens: int = 20, capture: CudaGraph | None = None
) -> None:
    """Greedy tokens, their log probabilities and the prompt's, for prompts of mixed lengths in one batch."""
    runner = load_runner(directory, capture=capture)
    reference = AutoModelForCausalLM.from_pretrained(directory).eval()
    stepper = Stepper(runner, num_blocks=NUM_BLOCKS, chunk_size=chunk_size)
    prompts = random_prompts(runner.spec.vocab_size)
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, num_logprobs=3, num_prompt_logprobs=0)
    sequences = [stepper.add(prompt, sampling) for prompt in prompts]
    for sequence, prompt, output in zip(sequences, prompts, stepper.run(), strict=True):
        expected = reference_logprobs(reference, prompt + output)
        best = expected[len(prompt) - 1 : -1].argmax(dim=1)
        assert output == best.tolist(), f"prompt of {len(prompt)} tokens"
        check_entries(stepper.prompt_logprobs[sequence.request_id], expected, prompt[1:])
        check_entries(stepper.logprobs[sequence.request_id], expected[len(prompt) - 1 :], output)


def check_entries(entries: list[TokenLogprobs], expected: Tensor, token_ids: list[int]) -> None:
    """Entry i is about `token_ids[i]`, whose distribution is row i of `expected`."""
    assert [entry.token_id for entry in entries] == token_ids
    for entry, row in zip(entries, expected, strict=False):
        assert entry.logprob == pytest.approx(row[entry.token_id].item(), abs=TOLERANCE)
        for token_id, logprob in entry.top:
            assert logprob == pytest.approx(row[token_id].item(), abs=TOLERANCE)


@torch.inference_mode()
def reference_logprobs(reference: torch.nn.Module, token_ids: list[int]) -> Tensor:
    """[T, V]: row i is the distribution of the token after token i."""
    logits: Tensor = reference(torch.tensor([token_ids])).logits[0]
    return logits.float().log_softmax(dim=1)
