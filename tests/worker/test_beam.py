"""Beam search of the whole engine equals that of transformers, in a batch with other requests."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from headway.checkpoint.model_directory import Checkpoint, read_checkpoint
from headway.core.request import BeamSearch, EarlyStopping, GenerationRequest, SamplingParams
from tests.checkpoints import make_checkpoint
from tests.worker.workload import generate, make_group

MAX_TOKENS = 16
WIDTHS = (2, 4, 6)
PENALTIES = (0.0, 1.0, -1.5, 2.0)
EARLY = {EarlyStopping.FIRST: True, EarlyStopping.HEURISTIC: False, EarlyStopping.NEVER: "never"}


@dataclass
class Case:
    checkpoint: Checkpoint
    model: PreTrainedModel
    prompts: list[list[int]]


@pytest.fixture(scope="module", params=["llama", "opt", "gpt2"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    directory: Path = make_checkpoint(tmp_path_factory.mktemp(request.param), request.param)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    draw = random.Random(3)
    prompts = [[draw.randrange(512) for _ in range(length)] for length in (1, 16, 33)]
    return Case(read_checkpoint(directory), model, prompts)


def likely_stops(case: Case, prompt: Sequence[int]) -> tuple[int, ...]:
    """Tokens that beams are likely to meet, some early and some late."""
    tokens = case.model.generate(
        torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0, len(prompt) :].tolist()
    return (tokens[4], tokens[11])


def expected(case: Case, request: GenerationRequest, **processors: object) -> list[tuple[list[int], float]]:
    """Tokens and score of each hypothesis of transformers."""
    sampling, prompt = request.sampling, request.prompt_token_ids
    assert sampling.beam is not None
    with torch.inference_mode():
        answer = case.model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            num_beams=sampling.beam.width,
            num_return_sequences=sampling.beam.num_hypotheses,
            length_penalty=sampling.beam.length_penalty,
            early_stopping=EARLY[sampling.beam.early_stopping],
            do_sample=False,
            max_new_tokens=sampling.max_tokens,
            eos_token_id=list(sampling.stop_token_ids) or None,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
            **processors,
        )
    outputs = [_until(sampling.stop_token_ids, tokens) for tokens in answer.sequences[:, len(prompt) :].tolist()]
    return list(zip(outputs, answer.sequences_scores.tolist(), strict=True))


def _until(stops: tuple[int, ...], tokens: list[int]) -> list[int]:
    """Without the padding."""
    return tokens[: next((index + 1 for index, token in enumerate(tokens) if token in stops), len(tokens))]


def beam_request(
    name: str, prompt: Sequence[int], search: BeamSearch, *, stops: tuple[int, ...] = (), **sampling: object
) -> list[GenerationRequest]:
    params = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True, stop_token_ids=stops, beam=search, **sampling)
    return make_group(name, prompt, params)


def check(case: Case, requests: list[list[GenerationRequest]], **processors: object) -> None:
    limits = {"num_blocks": 4096, "block_size": 4, "max_num_seqs": 128, "max_num_batched_tokens": 256}
    answers = generate(case.checkpoint, requests, **limits).answers
    for (request,) in requests:
        hypotheses = answers[request.request_id].hypotheses
        references = expected(case, request, **processors)
        assert len(hypotheses) == len(references)
        for found, (token_ids, score) in zip(hypotheses, references, strict=True):
            assert list(found.token_ids) == token_ids, request
            assert found.score == pytest.approx(score, rel=1e-5, abs=1e-4)
            ends = found.token_ids[-1] in request.sampling.stop_token_ids
            assert found.finish_reason == ("stop" if ends else "length")


@pytest.mark.parametrize("width", WIDTHS)
def test_hypotheses_and_scores_equal_transformers(case, width):
    requests = []
    for index, prompt in enumerate(case.prompts):
        stops = likely_stops(case, prompt)[: index % 3]
        for penalty in PENALTIES:
            search = BeamSearch(width=width, num_hypotheses=width, length_penalty=penalty)
            requests.append(beam_request(f"{index}/{penalty}", prompt, search, stops=stops))
    check(case, requests)


@pytest.mark.parametrize("early_stopping", EarlyStopping)
def test_a_search_ends_when_that_of_transformers_does(case, early_stopping):
    requests = []
    for index, prompt in enumerate(case.prompts):
        for penalty in PENALTIES:
            search = BeamSearch(width=3, num_hypotheses=3, length_penalty=penalty, early_stopping=early_stopping)
            requests.append(beam_request(f"{index}/{penalty}", prompt, search, stops=likely_stops(case, prompt)))
    check(case, requests)


def test_penalties_and_constraints_act_on_beams_as_in_transformers(case):
    bad_words = [[token] for token in range(0, 512, 4)] + [[1, 2], [3, 5, 6]]
    fields = {"repetition_penalty": 1.3, "min_tokens": 6, "logit_bias": ((9, 1.5),)}
    requests = []
    for index, prompt in enumerate(case.prompts):
        search = BeamSearch(width=4, num_hypotheses=4)
        stops = tuple(range(1, 512, 8))
        words = tuple(tuple(word) for word in bad_words)
        requests.append(beam_request(f"{index}", prompt, search, stops=stops, bad_token_ids=words, **fields))
    check(
        case,
        requests,
        repetition_penalty=1.3,
        min_new_tokens=6,
        bad_words_ids=bad_words,
        sequence_bias=[[[9], 1.5]],
    )
