"""Ranks that share each sequence's keys and values give the answers of one worker."""

import pytest

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.parallel_config import ParallelConfig
from tests.checkpoints import make_checkpoint
from tests.parallel.ranks import run_ranks
from tests.parallel.requests import CONDITIONS, check_equal, make_groups
from tests.parallel.roles import generate_in
from tests.worker.workload import generate

AT_ONCE, IN_CHUNKS = CONDITIONS
LAYOUTS = {
    "cp 2": ParallelConfig(cp=2),
    "cp 3": ParallelConfig(cp=3),
    "cp 2, weights split": ParallelConfig(cp=2, cp_ffn="tensor"),
    "cp 4, weights split": ParallelConfig(cp=4, cp_ffn="tensor"),
    "cp 2 x tp 2": ParallelConfig(cp=2, tp=2),
    "cp 2 x tp 2, weights split": ParallelConfig(cp=2, tp=2, cp_ffn="tensor"),
    "cp 2 x pp 2": ParallelConfig(cp=2, pp=2),
}


@pytest.mark.parametrize(
    ("family", "layout", "condition"),
    [
        *[("llama", layout, AT_ONCE) for layout in LAYOUTS],
        *[("llama", layout, IN_CHUNKS) for layout in ("cp 2", "cp 4, weights split")],
        *[(family, "cp 2", AT_ONCE) for family in ("opt", "gpt2", "qwen2_moe", "smollm3")],
        *[(family, "cp 2, weights split", AT_ONCE) for family in ("opt", "qwen2_moe")],
    ],
)
def test_requests_of_every_kind_get_the_tokens_that_one_worker_gives(tmp_path, family, layout, condition):
    directory = make_checkpoint(tmp_path, family)
    limits, parallel = {"num_blocks": 504} | CONDITIONS[condition], LAYOUTS[layout]
    run, *_ = run_ranks(parallel, generate_in, directory, make_groups(), limits)
    alone = generate(read_checkpoint(directory), make_groups(), **limits)
    check_equal(run.answers, alone.answers)
    if "num_host_blocks" in limits:
        assert run.stats.num_swaps > 0
