"""A group of stages, tensor-parallel or not, gives the answers of one worker."""

from pathlib import Path

import pytest

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.parallel_config import ParallelConfig
from headway.core.shard import check_parallel
from headway.runner.model_runner import ModelRunner
from tests.checkpoints import make_checkpoint
from tests.parallel.ranks import run_ranks
from tests.parallel.requests import CONDITIONS, check_equal, make_groups
from tests.parallel.roles import (
    NUM_BLOCKS,
    generate_in,
    make_sampling_stepper,
    measure_in,
    outcome_of,
    overlap_in,
    sizes_in,
)
from tests.worker.workload import generate

PAIR = ParallelConfig(pp=2)
UNEVEN = ParallelConfig(pp=2, stage_layers=(1, 3))
THREE = ParallelConfig(pp=3)
SQUARE = ParallelConfig(pp=2, tp=2)

FOUR = {"num_hidden_layers": 4}
HEADS = {"num_attention_heads": 5, "hidden_size": 80, "num_key_value_heads": 5}
NARROW = {"do_layer_norm_before": False, "word_embed_proj_dim": 32}
ODD = {"vocab_size": 517, "tie_word_embeddings": True}
AT_ONCE, IN_CHUNKS = CONDITIONS
CASES = {
    "llama": ("llama", FOUR, PAIR, IN_CHUNKS, None),
    "llama, three stages": ("llama", FOUR, THREE, AT_ONCE, None),
    "llama, tied, int8": ("llama", {**FOUR, "tie_word_embeddings": True}, UNEVEN, IN_CHUNKS, "int8"),
    "llama, two by two": ("llama", FOUR, SQUARE, IN_CHUNKS, None),
    "llama, five heads": ("llama", {**FOUR, **HEADS}, SQUARE, AT_ONCE, None),
    "qwen2": ("qwen2", {}, PAIR, AT_ONCE, None),
    "qwen3": ("qwen3", {}, SQUARE, AT_ONCE, None),
    "mixtral, int8": ("mixtral", FOUR, UNEVEN, AT_ONCE, "int8"),
    "qwen2-moe": ("qwen2_moe", {}, SQUARE, AT_ONCE, None),
    "opt, narrow embedding": ("opt", {**FOUR, **NARROW}, SQUARE, IN_CHUNKS, None),
    "opt, untied": ("opt", {"tie_word_embeddings": False}, PAIR, AT_ONCE, None),
    "gpt2": ("gpt2", {"n_layer": 4}, THREE, IN_CHUNKS, None),
    "llama, odd vocabulary, tied": ("llama", {**FOUR, **ODD}, THREE, AT_ONCE, None),
    "opt, odd vocabulary": ("opt", {**FOUR, "vocab_size": 517}, SQUARE, AT_ONCE, None),
    "llama, four stages": ("llama", FOUR, ParallelConfig(pp=4), IN_CHUNKS, None),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model"), "llama", **FOUR)


@pytest.mark.parametrize("case", CASES)
def test_requests_of_every_kind_get_the_tokens_that_one_worker_gives(tmp_path, case):
    family, overrides, parallel, condition, quantization = CASES[case]
    directory = make_checkpoint(tmp_path, family, **overrides)
    checkpoint, limits = read_checkpoint(directory, quantization=quantization), CONDITIONS[condition]
    check_parallel(checkpoint.spec, parallel, num_workers=parallel.num_ranks)
    run, *_ = run_ranks(parallel, generate_in, directory, make_groups(), limits, quantization)
    check_equal(run.answers, generate(checkpoint, make_groups(), **limits).answers)
    if "num_host_blocks" in limits:
        assert run.stats.num_swaps > 0
    else:
        assert run.stats.num_accepted_tokens > 0


def test_sequences_that_are_computed_again_after_a_preemption_get_the_same(directory):
    limits = {**CONDITIONS[IN_CHUNKS], "preemption": "recompute"}
    run, *_ = run_ranks(UNEVEN, generate_in, directory, make_groups(), limits)
    check_equal(run.answers, generate(read_checkpoint(directory), make_groups(), **limits).answers)
    assert run.stats.num_preemptions > 0


@pytest.mark.parametrize("parallel", [PAIR, THREE, SQUARE], ids=str)
def test_batches_that_are_in_flight_together_give_what_they_give_one_after_the_other(directory, parallel):
    (tokens, logprobs), *_ = run_ranks(parallel, overlap_in, directory)
    alone = make_sampling_stepper(ModelRunner(read_checkpoint(directory), num_blocks=NUM_BLOCKS))
    alone.run()
    expected_tokens, expected_logprobs = outcome_of(alone)
    assert tokens == expected_tokens
    assert logprobs == pytest.approx(expected_logprobs, abs=1e-4)


@pytest.mark.parametrize("parallel", [THREE, SQUARE], ids=str)
def test_a_measured_step_runs_on_all_stages_and_leaves_their_pools_alone(directory, parallel):
    (step_s, undisturbed, disturbed), *_ = run_ranks(parallel, measure_in, directory)
    assert step_s > 0
    assert disturbed == undisturbed


def test_each_stage_has_its_layers_of_the_pool(directory):
    alone = ModelRunner(read_checkpoint(directory), num_blocks=NUM_BLOCKS)
    (last, first), num_layers = run_ranks(UNEVEN, sizes_in, directory), alone.spec.num_layers
    for (weight_bytes, block_bytes, pool_bytes), num_own in ((first, 1), (last, 3)):
        assert weight_bytes < alone.weight_bytes
        assert block_bytes == alone.kv_bytes_per_block * num_own // num_layers
        assert pool_bytes == block_bytes * NUM_BLOCKS
