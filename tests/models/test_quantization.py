"""What rounding weights to int8 does to a model's answers. Random weights are less forgiving than trained ones."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.request import SamplingParams
from headway.runner.model_runner import ModelRunner
from tests.checkpoints import make_checkpoint
from tests.models.oracle import NUM_BLOCKS, random_prompts, reference_logprobs
from tests.runner.stepper import Stepper

FAMILIES = ("llama", "qwen2", "mixtral", "opt", "gpt2")


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities_stay_close_and_nearly_all_best_tokens_the_same(tmp_path, family):
    directory = make_checkpoint(tmp_path, family, seed=1)
    checkpoint = read_checkpoint(directory, quantization="int8")
    runner = ModelRunner(checkpoint, num_blocks=NUM_BLOCKS, num_threads=1)
    reference = AutoModelForCausalLM.from_pretrained(directory).eval()
    stepper = Stepper(runner, num_blocks=NUM_BLOCKS)
    sampling = SamplingParams(max_tokens=1, temperature=0.0, num_prompt_logprobs=1)
    prompts = random_prompts(runner.spec.vocab_size, (40, 70, 100))
    sequences = [stepper.add(prompt, sampling) for prompt in prompts]
    stepper.run()
    errors, agreements = [], []
    for sequence, prompt in zip(sequences, prompts, strict=True):
        expected = reference_logprobs(reference, prompt)
        for entry, row in zip(stepper.prompt_logprobs[sequence.request_id], expected, strict=False):
            errors.append(abs(entry.logprob - row[entry.token_id].item()))
            agreements.append(entry.top[0][0] == int(row.argmax()))
    assert sum(errors) / len(errors) < 0.1
    assert sum(agreements) / len(agreements) > 0.9


def test_a_rounded_model_takes_less_memory(tmp_path):
    directory = make_checkpoint(tmp_path, "llama")
    kept, rounded = (read_checkpoint(directory, quantization=name).spec for name in (None, "int8"))
    embedding_bytes = 4 * kept.vocab_size * kept.hidden_size
    assert rounded.weight_bytes - embedding_bytes == (kept.weight_bytes - embedding_bytes) / 4


def test_bfloat16_activations_go_with_it(tmp_path):
    checkpoint = read_checkpoint(make_checkpoint(tmp_path, "llama"), dtype="bfloat16", quantization="int8")
    runner = ModelRunner(checkpoint, num_blocks=NUM_BLOCKS, num_threads=1)
    stepper = Stepper(runner, num_blocks=NUM_BLOCKS)
    sequence = stepper.add(list(range(20)), SamplingParams(max_tokens=4, temperature=0.0, num_logprobs=0))
    assert len(stepper.run()[0]) == 4
    assert torch.tensor([entry.logprob for entry in stepper.logprobs[sequence.request_id]]).isfinite().all()
