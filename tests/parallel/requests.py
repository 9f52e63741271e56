"""Requests of every kind, and when a group's answers to them are those of one worker."""

from collections.abc import Mapping

import pytest

from headway.core.request import BeamSearch, Guide, GuideKind, SamplingParams, TokenLogprobs
from tests.models.oracle import random_prompts
from tests.worker.workload import Answer, Group, make_group

PROMPTS = random_prompts(512, (1, 15, 16, 33, 70, 90))
KINDS: dict[str, dict[str, object]] = {
    "sampled": {"temperature": 0.9, "top_p": 0.95, "seed": 3, "num_logprobs": 1},
    "penalised": {"temperature": 0.7, "seed": 4, "frequency_penalty": 0.5, "repetition_penalty": 1.1},
    "guided": {"temperature": 0.9, "seed": 6, "guide": Guide(GuideKind.REGEX, "([a-f]{3} ){30}")},
    "beam": {"beam": BeamSearch(width=3, num_hypotheses=3)},
    "scored": {"temperature": 0.0, "num_logprobs": 2, "num_prompt_logprobs": 1},
}
CONDITIONS: dict[str, dict[str, object]] = {
    "all at once, with drafts": {"num_draft_tokens": 4},
    "in chunks, through the host": {
        "num_blocks": 20,
        "num_host_blocks": 64,
        "preemption": "swap",
        "max_num_prefill_tokens": 13,
    },
}


def make_groups() -> list[Group]:
    def params(**fields: object) -> SamplingParams:
        return SamplingParams(**{"max_tokens": 20, "ignore_eos": True, **fields})

    groups: list[Group] = [
        make_group(f"greedy-{index}", prompt, params(temperature=0.0)) for index, prompt in enumerate(PROMPTS)
    ]
    groups += [make_group(kind, PROMPTS[4], params(**fields)) for kind, fields in KINDS.items()]
    # Siblings share a prompt that ends within a block, which each but one has to copy.
    groups.append(make_group("siblings", PROMPTS[3], *(params(seed=seed) for seed in range(4))))
    # Says one token again and again, which is easy to guess.
    groups.append(make_group("repeated", PROMPTS[1], params(temperature=0.0, logit_bias=((12, 100.0),))))
    return groups


def check_equal(found: Mapping[str, Answer], expected: Mapping[str, Answer]) -> None:
    """The same tokens everywhere, and log probabilities but for rounding."""
    for name, answer in expected.items():
        assert found[name].token_ids == answer.token_ids, name
        assert found[name].end == answer.end, name
        assert [h.token_ids for h in found[name].hypotheses] == [h.token_ids for h in answer.hypotheses], name
        check_logprobs(found[name].logprobs, answer.logprobs)
        check_logprobs(found[name].prompt_logprobs, answer.prompt_logprobs)


def check_logprobs(found: list[TokenLogprobs], expected: list[TokenLogprobs]) -> None:
    assert [entry.token_id for entry in found] == [entry.token_id for entry in expected]
    assert [entry.logprob for entry in found] == pytest.approx([entry.logprob for entry in expected], abs=1e-4)
