"""A group's answers are those of one worker."""

from pathlib import Path

import pytest
import torch.distributed as dist

from headway.checkpoint.model_directory import read_checkpoint
from headway.runner.model_runner import ModelRunner
from tests.checkpoints import make_checkpoint
from tests.parallel.ranks import run_ranks
from tests.parallel.requests import CONDITIONS, check_equal, make_groups
from tests.parallel.roles import (
    NUM_BLOCKS,
    fail_in,
    generate_in,
    make_sampling_stepper,
    make_stepper,
    measure_in,
    sizes_in,
    traffic_in,
)
from tests.worker.workload import generate


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model"), "llama")


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
    if "num_host_blocks" in limits:
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
    """Per layer two all-reduces of [T, hidden], one for the embedding, and the best tokens to the first rank."""
    spec = read_checkpoint(directory).spec
    ring = 2 * (num_ranks - 1) * 3 * spec.hidden_size * 4 // num_ranks
    for rank, traffic in enumerate(run_ranks(num_ranks, traffic_in, directory)):
        assert traffic == {
            "embedding": (1, ring),
            "attention": (spec.num_layers, spec.num_layers * ring),
            "mlp": (spec.num_layers, spec.num_layers * ring),
            "best": (1, 3 * 2 * 8 if rank > 0 else 0),
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


def test_a_sequence_that_is_given_up_in_flight_changes_nothing_for_the_others(directory):
    runner = ModelRunner(read_checkpoint(directory), num_blocks=NUM_BLOCKS)
    results = []
    for is_disturbed in (False, True):
        stepper = make_sampling_stepper(runner)
        stepper.step()
        batch = stepper.schedule(stepper.sequences)
        runner.start(batch)
        if is_disturbed:  # the rest of its prompt is being scored; what it has computed is forgotten
            stepper.preempt(stepper.sequences[5])
        results.append(runner.finish())
    assert results[0] == results[1]
    assert results[0].prompt_logprobs[5]
