"""What ranks of every layout send follows from the shapes, to the byte; the cost model reckons with the same."""

from collections import Counter

import pytest

from benchmarks.parallel.volume import StepShape, Volumes, step_bytes
from headway.core.mesh import ParallelConfig
from headway.core.shard import check_parallel
from headway.planner.serving.exchange import exchanges_of
from headway.store.checkpoint import read_checkpoint
from tests.checkpoints import make_checkpoint
from tests.parallel.ranks import run_ranks
from tests.parallel.volumes import volumes_in

FOUR = {"num_hidden_layers": 4}
MODELS = {
    "gqa": ("llama", FOUR),
    "mha": ("llama", {**FOUR, "num_key_value_heads": 4}),
    "five heads": ("llama", {**FOUR, "num_attention_heads": 5, "hidden_size": 80, "num_key_value_heads": 5}),
    "narrow": ("opt", {**FOUR, "do_layer_norm_before": False, "word_embed_proj_dim": 32}),
    "experts": ("qwen2_moe", FOUR),
}
CASES = [
    ("mha", ParallelConfig(tp=3)),
    ("gqa", ParallelConfig(pp=2, stage_layers=(1, 3))),
    ("gqa", ParallelConfig(pp=3)),
    ("mha", ParallelConfig(pp=2, tp=3)),
    ("narrow", ParallelConfig(pp=2, tp=2)),
    ("gqa", ParallelConfig(cp=2)),
    ("mha", ParallelConfig(cp=3)),
    ("five heads", ParallelConfig(cp=3)),
    ("narrow", ParallelConfig(cp=2)),
    ("experts", ParallelConfig(cp=2)),
    ("gqa", ParallelConfig(cp=2, cp_ffn="tensor")),
    ("gqa", ParallelConfig(cp=4, cp_ffn="tensor")),
    ("mha", ParallelConfig(cp=3, cp_ffn="tensor")),
    ("five heads", ParallelConfig(cp=2, cp_ffn="tensor")),
    ("five heads", ParallelConfig(cp=3, cp_ffn="tensor")),
    ("gqa", ParallelConfig(cp=2, tp=2)),
    ("five heads", ParallelConfig(cp=2, tp=2, cp_ffn="tensor")),
    ("gqa", ParallelConfig(cp=2, pp=2)),
    ("five heads", ParallelConfig(cp=2, pp=2, cp_ffn="tensor")),
]


EACH_CASE = pytest.mark.parametrize(
    ("model", "parallel"), CASES, ids=[f"{model}, {parallel.flags}" for model, parallel in CASES]
)


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    return {
        name: make_checkpoint(tmp_path_factory.mktemp("m"), family, **sizes) for name, (family, sizes) in MODELS.items()
    }


@EACH_CASE
def test_ranks_send_what_the_formula_says(directories, model, parallel):
    spec = read_checkpoint(directories[model]).spec
    check_parallel(spec, parallel, num_workers=parallel.num_ranks)
    (shapes, _), *_ = found = run_ranks(parallel, volumes_in, directories[model])
    assert any(shape.copied_from for shape in shapes) == (parallel.cp > 1)
    for rank, (_, counted) in enumerate(found):
        derived: Counter[object] = Counter()
        for shape in shapes:
            derived.update(step_bytes(spec, shape, parallel=parallel, rank=rank))
        assert counted == derived, f"rank {rank}"


@EACH_CASE
def test_the_cost_model_reckons_with_the_rank_that_sends_most(directories, model, parallel):
    """A step of as many tokens as shards share evenly, of which every other one's logits are wanted."""
    spec, num_tokens = read_checkpoint(directories[model]).spec, 24
    shape = StepShape(num_tokens=num_tokens, wanted_rows=tuple(range(0, num_tokens, 2)))
    for stage in range(parallel.pp):
        most: Counter[tuple[str, str]] = Counter()
        for rank in range(parallel.num_ranks):
            if parallel.place(rank).stage == stage:
                most |= by_operation(step_bytes(spec, shape, parallel=parallel, rank=rank))
        reckoned = [
            num_tokens * exchange.token_bytes + num_tokens / 2 * exchange.wanted_bytes
            for exchange in exchanges_of(spec, parallel, stage=stage)
        ]
        assert sorted(reckoned) == pytest.approx(sorted(most.values()))


def by_operation(volumes: Volumes) -> Counter[tuple[str, str]]:
    """Bytes of each operation along each axis, in all layers together."""
    counts: Counter[tuple[str, str]] = Counter()
    for key, num_bytes in volumes.items():
        counts[key.axis, key.operation] += num_bytes
    return counts
