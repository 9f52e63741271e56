"""A group's answers are those of one worker."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch.distributed as dist

from headway.core.request import BeamSearch, Guide, GuideKind, SamplingParams, TokenLogprobs
from headway.runner.model_runner import ModelRunner
from headway.store.checkpoint import read_checkpoint
from tests.checkpoints import make_checkpoint
from tests.models.oracle import random_prompts
from tests.parallel.ranks import run_ranks
from tests.parallel.roles import NUM_BLOCKS, fail_in, generate_in, make_stepper, measure_in, sizes_in, traffic_in
from tests.worker.workload import Answer, Group, generate, make_group

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
        "host_blocks": 64,
        "preemption": "swap",
        "max_num_prefill_tokens": 13,
    },
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model"), "llama")


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


@pytest.mark.parametrize(
    ("family", "num_ranks", "condition"),
    [
        *[("llama", num_ranks, condition) for num_ranks in (2, 4) for condition in CONDITIONS],
        *[(family, 3, "all at once, with drafts") for family in ("opt", "gpt2")],
        *[(family, 2, "all at once, with drafts") for family in ("qwen2_moe", "smollm3")],
    ],
)
def test_requests_of_every_kind_get_the_tokens_that_one_worker_gives(tmp_path, family, num_ranks, condition):
    directory = make_checkpoint(tmp_path, family)
    limits = CONDITIONS[condition]
    run, *_ = run_ranks(num_ranks, generate_in, directory, make_groups(), limits)
    alone = generate(read_checkpoint(directory), make_groups(), **limits)
    check_equal(run.answers, alone.answers)
    if "host_blocks" in limits:
        assert run.stats.num_swaps > 0
    else:
        assert run.stats.num_accepted_tokens > 0


def test_a_measured_step_runs_on_all_ranks_and_leaves_their_pools_alone(directory):
    result, _ = run_ranks(2, measure_in, directory)
    step_s, undisturbed, disturbed = result
    assert step_s > 0
    assert disturbed == undisturbed


def test_each_rank_has_its_part_of_the_pool(directory):
    alone = ModelRunner(read_checkpoint(directory), num_blocks=NUM_BLOCKS)
    for weight_bytes, block_bytes, pool_bytes in run_ranks(2, sizes_in, directory):
        assert weight_bytes < 0.6 * alone.weight_bytes
        assert block_bytes == alone.kv_bytes_per_block // 2
        assert pool_bytes == block_bytes * NUM_BLOCKS


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_ranks_send_what_the_formula_says(directory, num_ranks):
    """Per layer two all-reduces of [T, hidden], one for the embedding, and the logits to the first rank."""
    spec = read_checkpoint(directory).spec
    ring = 2 * (num_ranks - 1) * 3 * spec.hidden_size * 4 // num_ranks
    for rank, traffic in enumerate(run_ranks(num_ranks, traffic_in, directory)):
        assert traffic == {
            "embedding": (1, ring),
            "attention": (spec.num_layers, spec.num_layers * ring),
            "mlp": (spec.num_layers, spec.num_layers * ring),
            "logits": (1, 3 * spec.vocab_size // num_ranks * 4 if rank > 0 else 0),
        }


def test_a_leader_that_fails_within_a_step_is_lost_like_a_rank(directory):
    message, _ = run_ranks(2, fail_in, directory, 0)
    assert "nothing to share" in message


def test_a_rank_that_fails_is_lost_to_the_leader(directory):
    message, _ = run_ranks(2, fail_in, directory, 1)
    assert "tensor rank 0" in message


def test_one_worker_needs_no_group(directory):
    runner = ModelRunner(read_checkpoint(directory), num_blocks=NUM_BLOCKS)
    assert make_stepper(runner).run()
    runner.close()
    assert not dist.is_initialized()
    assert runner.group.traffic.totals() == {}
