"""Drafts change how many steps an answer takes, and nothing else about it."""

import random
from pathlib import Path

import pytest

from headway.checkpoint.model_directory import Checkpoint, read_checkpoint
from headway.core.request import BeamSearch, Guide, GuideKind, SamplingParams
from tests.checkpoints import make_checkpoint
from tests.worker.workload import Group, generate, make_group

MAX_TOKENS = 48

KINDS: dict[str, dict[str, object]] = {
    "greedy": {"temperature": 0.0, "num_logprobs": 2},
    "sampled": {"temperature": 0.4, "top_p": 0.9, "seed": 3},
    "hot": {"temperature": 1.5, "seed": 4},
    "penalised": {"temperature": 0.0, "frequency_penalty": 0.1, "repetition_penalty": 1.02, "num_logprobs": 0},
    "stopped": {"temperature": 0.0, "stop_token_ids": tuple(range(0, 512, 9)), "min_tokens": 20},
    "worded": {"temperature": 0.0, "bad_token_ids": ((7,), (8, 9)), "logit_bias": ((12, 3.0),)},
    "guided": {"temperature": 0.0, "guide": Guide(GuideKind.REGEX, "([a-d]{2} ){40}")},
    "beam": {"beam": BeamSearch(width=3, num_hypotheses=3)},
}


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    directory: Path = make_checkpoint(tmp_path_factory.mktemp(request.param), request.param)
    return read_checkpoint(directory)


def groups(*kinds: str) -> list[Group]:
    """Prompts that repeat themselves, of each kind."""
    draw = random.Random(5)
    found: list[Group] = []
    for index, length in enumerate((1, 7, 30)):
        phrase = [draw.randrange(512) for _ in range(length)]
        for kind in kinds:
            params = SamplingParams(**{"max_tokens": MAX_TOKENS, "ignore_eos": True, **KINDS[kind]})
            found.append(make_group(f"{kind}/{index}", phrase * 3, params))
    return found


@pytest.mark.parametrize("limits", [{}, {"max_num_prefill_tokens": 13}, {"num_blocks": 28}])
def test_answers_of_every_kind_stay_the_same(checkpoint, limits):
    requests = groups(*KINDS)
    plain = generate(checkpoint, requests)
    drafted = generate(checkpoint, requests, num_draft_tokens=4, **limits)
    assert drafted.answers == plain.answers
    if "num_blocks" in limits:
        assert drafted.stats.num_preemptions > 0


def test_an_answer_that_repeats_itself_takes_fewer_steps(checkpoint):
    text = SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0, guide=Guide(GuideKind.REGEX, "(to and fro, ){30}"))
    requests = [make_group("refrain", [1, 2, 3], text)]
    plain, drafted = (generate(checkpoint, requests, num_draft_tokens=count) for count in (0, 4))
    assert drafted.answers == plain.answers
    assert drafted.stats.num_steps < 0.5 * plain.stats.num_steps
    assert drafted.stats.num_accepted_tokens == MAX_TOKENS - drafted.stats.num_steps
