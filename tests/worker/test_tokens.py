"""The whole engine on real networks against transformers: 20 prompts in one batch, 64 greedy tokens each."""

import random
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.request import GenerationRequest, SamplingParams, SequenceOutput
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.runner.model_runner import ModelRunner
from tests.checkpoints import make_checkpoint

NUM_PROMPTS = 20
NUM_TOKENS = 64

CONFIGURATIONS: dict[str, tuple[str, dict[str, object]]] = {
    "llama-gqa-untied": ("llama", {"num_key_value_heads": 2, "tie_word_embeddings": False}),
    "llama-mha-tied": ("llama", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    "qwen2": ("qwen2", {}),
    "mixtral": ("mixtral", {}),
    "qwen2-moe": ("qwen2_moe", {"num_hidden_layers": 3, "decoder_sparse_step": 2}),
    "qwen3-moe": ("qwen3_moe", {}),
    "opt": ("opt", {}),
    "gpt2": ("gpt2", {}),
}
CONDITIONS: dict[str, dict[str, int]] = {
    "all-at-once": {},
    "odd-chunks": {"max_num_prefill_tokens": 13},
    "preempted": {"num_blocks": 60},
}


class Case:
    """A checkpoint, prompts for it, and transformers' model of it."""

    def __init__(self, directory: Path) -> None:
        self.checkpoint = read_checkpoint(directory)
        random_ids = random.Random(7)
        vocab_size = self.checkpoint.spec.vocab_size
        self.prompts = [
            tuple(random_ids.randrange(vocab_size) for _ in range(random_ids.choice((1, 3, 15, 16, 17, 40, 97))))
            for _ in range(NUM_PROMPTS)
        ]
        self._model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()

    @cache  # noqa: B019 - as long as the case
    def likeliest(self, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> tuple[tuple[int, ...], list[float]]:
        """What transformers finds likeliest at the place of each of the tokens, and the logarithms of their
        probabilities. Where these are the tokens themselves, it would have generated them, too, and in one pass it
        says so for all."""
        with torch.inference_mode():
            logits = self._model(torch.tensor([prompt + tokens[:-1]])).logits[0, len(prompt) - 1 :]
        logprobs, found = torch.log_softmax(logits.double(), dim=-1).max(dim=-1)
        return tuple(found.tolist()), logprobs.tolist()


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    family, overrides = CONFIGURATIONS[request.param]
    return Case(make_checkpoint(tmp_path_factory.mktemp(request.param), family, **overrides))


def generate(case: Case, *, num_blocks: int = 512, **limits: int) -> tuple[Engine, dict[str, list[SequenceOutput]]]:
    """Everything at once through the production engine; returns the outputs by request."""
    runner = ModelRunner(case.checkpoint, num_blocks=num_blocks, block_size=16, num_threads=1)
    config = EngineConfig(num_blocks=num_blocks, max_model_len=256, max_num_seqs=32, **limits)
    engine = Engine(config, runner=runner, clock=time.perf_counter)
    sampling = SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True, num_logprobs=0)
    outputs: dict[str, list[SequenceOutput]] = {}
    for index, prompt in enumerate(case.prompts):
        outputs[str(index)] = []
        engine.submit(GenerationRequest(request_id=str(index), model="m", prompt_token_ids=prompt, sampling=sampling))
    while engine.has_work:
        for output in engine.step():
            outputs[output.request_id].append(output)
    engine.check_integrity()
    return engine, outputs


@pytest.mark.parametrize("condition", CONDITIONS)
def test_greedy_tokens_and_logprobs_equal_transformers(case: Case, condition: str) -> None:
    engine, outputs = generate(case, **CONDITIONS[condition])
    for index, prompt in enumerate(case.prompts):
        found = outputs[str(index)]
        tokens = tuple(token for output in found for token in output.token_ids)
        expected, logprobs = case.likeliest(prompt, tokens)
        assert len(tokens) == NUM_TOKENS
        assert tokens == expected, f"prompt {index}"
        measured = [entry.logprob for output in found for entry in output.logprobs]
        assert measured == pytest.approx(logprobs, abs=1e-4)
    if condition == "preempted":
        assert engine.stats().num_preemptions > 0


def test_a_resumed_sequence_goes_on_as_if_never_interrupted(case: Case) -> None:
    """What another worker had generated is given along; greedy and sampled alike draw the same tokens again."""
    runner = ModelRunner(case.checkpoint, num_blocks=64, block_size=16, num_threads=1)
    config = EngineConfig(num_blocks=64, max_model_len=256)

    def run(sampling: SamplingParams, given: tuple[int, ...] = ()) -> list[int]:
        engine = Engine(config, runner=runner, clock=time.perf_counter)
        engine.submit(
            GenerationRequest(
                request_id="r",
                model="m",
                prompt_token_ids=case.prompts[3],
                sampling=sampling,
                output_token_ids=given,
            )
        )
        tokens: list[int] = []
        while engine.has_work:
            tokens += [token for output in engine.step() for token in output.token_ids]
        return tokens

    plans: list[Callable[[], SamplingParams]] = [
        lambda: SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True),
        lambda: SamplingParams(max_tokens=24, temperature=0.9, top_p=0.9, seed=5, ignore_eos=True),
        lambda: SamplingParams(
            max_tokens=24, temperature=0.7, top_k=20, seed=6, frequency_penalty=0.5, repetition_penalty=1.1,
            ignore_eos=True,
        ),
    ]  # fmt: skip
    for make in plans:
        whole = run(make())
        assert len(whole) == 24
        assert run(make(), tuple(whole[:9])) == whole[9:]
