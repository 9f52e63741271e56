"""Requests of every kind, in a pool that is too small for them: what each gets is what it gets in a large one."""

import random
from pathlib import Path

import pytest

from headway.checkpoint.model_directory import Checkpoint, read_checkpoint
from headway.core.request import BeamSearch, Guide, GuideKind, SamplingParams
from tests.checkpoints import make_checkpoint
from tests.worker.workload import Group, Run, generate, make_group

KINDS: dict[str, dict[str, object]] = {
    "greedy": {"temperature": 0.0, "num_logprobs": 1},
    "sampled": {"temperature": 0.8, "top_p": 0.9, "seed": 3},
    "penalised": {"temperature": 0.7, "seed": 4, "frequency_penalty": 0.5, "repetition_penalty": 1.1},
    "scored": {"temperature": 0.0, "num_prompt_logprobs": 1},
    "stopped": {"temperature": 1.0, "seed": 5, "stop_token_ids": tuple(range(0, 512, 7)), "min_tokens": 9},
    "worded": {"temperature": 0.0, "bad_token_ids": ((7,), (8, 9)), "logit_bias": ((12, 3.0),)},
    "guided": {"temperature": 0.9, "seed": 6, "guide": Guide(GuideKind.REGEX, "([a-f]{3} ){30}")},
    "beam": {"beam": BeamSearch(width=3, num_hypotheses=3)},
    "guided-beam": {"beam": BeamSearch(width=2, num_hypotheses=2), "guide": Guide(GuideKind.REGEX, "([a-f]{3} ){30}")},
}
SAMPLE_SEEDS = (31, 32, 33)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    directory: Path = make_checkpoint(tmp_path_factory.mktemp("tiny"), "llama")
    return read_checkpoint(directory)


def make_groups(*, num_rounds: int) -> list[Group]:
    """Of each kind one per round; groups of samples; and pairs of prompts that begin alike."""
    draw = random.Random(12)
    common = [draw.randrange(512) for _ in range(24)]
    groups: list[Group] = []
    for index in range(num_rounds):
        for kind, fields in KINDS.items():
            prompt = [draw.randrange(512) for _ in range(draw.choice((1, 8, 21, 40)))]
            prompt = common + prompt if index % 2 else prompt
            params = SamplingParams(**{"max_tokens": 30, "ignore_eos": True, **fields})
            groups.append(make_group(f"{kind}/{index}", prompt, params))
        samples = [SamplingParams(max_tokens=30, seed=seed, ignore_eos=True) for seed in SAMPLE_SEEDS]
        groups.append(make_group(f"samples/{index}", common[: 9 + index], *samples))
    return groups


@pytest.fixture(scope="module")
def undisturbed(checkpoint: Checkpoint) -> Run:
    run = generate(checkpoint, make_groups(num_rounds=2), num_blocks=2048, block_size=8)
    assert run.stats.num_preemptions == 0
    return run


@pytest.mark.parametrize(("order", "num_draft_tokens"), [(1, 0), (-1, 3)])
@pytest.mark.parametrize("enable_prefix_cache", [True, False])
@pytest.mark.parametrize(
    "mode",
    [
        {"preemption": "recompute"},
        {"preemption": "swap", "num_host_blocks": 400},
        {"preemption": "swap", "num_host_blocks": 20},
        {"preemption": "auto", "num_host_blocks": 60},
    ],
    ids=["recompute", "swap", "swap-little", "auto"],
)
def test_answers_survive_preemption(checkpoint, undisturbed, mode, enable_prefix_cache, order, num_draft_tokens):
    run = generate(
        checkpoint,
        make_groups(num_rounds=2)[::order],
        num_blocks=40,
        block_size=8,
        max_num_batched_tokens=64,
        enable_prefix_cache=enable_prefix_cache,
        num_draft_tokens=num_draft_tokens,
        **mode,
    )
    for name, answer in undisturbed.answers.items():
        assert run.answers[name] == answer, name
    assert run.stats.num_preemptions > 3
