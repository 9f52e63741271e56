"""What ranks of every layout send follows from the shapes, to the byte; the cost model reckons with the same."""

from collections import Counter

import pytest

from benchmarks.parallel.volume import StepShape, Volumes, step_bytes
from headway.checkpoint.model_directory import read_checkpoint
from headway.core.parallel_config import ParallelConfig
from headway.core.shard import check_parallel
from headway.planner.serving.collectives import StepCollective, collectives_of, head_collectives_of
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
    "odd": ("llama", {**FOUR, "vocab_size": 517, "tie_word_embeddings": True}),
}
NUM_TOKENS = 24
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
    ("odd", ParallelConfig(pp=3)),
    ("odd", ParallelConfig(pp=2, tp=2)),
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
    spec = read_checkpoint(directories[model]).spec
    shape = StepShape(num_tokens=NUM_TOKENS, wanted_rows=tuple(range(0, NUM_TOKENS, 2)))
    for_head: Counter[tuple[str, str]] = Counter()
    for stage in range(parallel.pp):
        for_layers: Counter[tuple[str, str]] = Counter()
        for rank in range(parallel.num_ranks):
            if parallel.place(rank).stage == stage:
                volumes = step_bytes(spec, shape, parallel=parallel, rank=rank)
                for_layers |= by_operation(volumes, of_head=False)
                for_head |= by_operation(volumes, of_head=True)
        assert reckoned(collectives_of(spec, parallel, stage=stage)) == pytest.approx(sorted(for_layers.values()))
    assert reckoned(head_collectives_of(spec, parallel)) == pytest.approx(sorted(for_head.values()))


def reckoned(collectives: tuple[StepCollective, ...]) -> list[float]:
    return sorted(NUM_TOKENS * each.token_bytes + NUM_TOKENS / 2 * each.wanted_bytes for each in collectives)


def by_operation(volumes: Volumes, *, of_head: bool) -> Counter[tuple[str, str]]:
    """Bytes of each operation along each axis, in all layers together or for the logits."""
    counts: Counter[tuple[str, str]] = Counter()
    for key, num_bytes in volumes.items():
        if (key.site in ("hidden", "logits")) == of_head:
            counts[key.axis, key.operation] += num_bytes
    return counts
