"""Who stands where in a group, and who holds what of a model: every part is held, exactly as often as it should be."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.encoder import EncoderSpec
from headway.core.errors import InvalidArgumentError
from headway.core.model import ExpertsSpec, ModelFamily, ModelSpec
from headway.core.parallel_config import ParallelConfig, split
from headway.core.shard import check_parallel, nearest_parallel, shard_of, shard_weight_bytes, whole
from tests.specs import llama_spec

SPEC = llama_spec(
    vocab_size=97,
    hidden_size=24,
    num_layers=5,
    num_heads=12,
    num_kv_heads=4,
    head_dim=2,
    intermediate_size=31,
    max_position=64,
)
EXPERTS = ExpertsSpec(
    num_experts=6,
    num_experts_per_tok=2,
    intermediate_size=10,
    shared_intermediate_size=7,
    sparse_layers=(True, False, True, True, False),
)
SPECS = {
    "gqa": SPEC,
    "mha": replace(SPEC, num_kv_heads=12),
    "mqa": replace(SPEC, num_kv_heads=1),
    "odd": replace(SPEC, num_heads=9, num_kv_heads=3),
    "experts": replace(SPEC, experts=EXPERTS),
    "opt": replace(SPEC, family=ModelFamily.OPT, num_kv_heads=12, rope=None, embedding_dim=16),
    "int8": replace(SPEC, quantization="int8"),
}
LAYOUTS = [
    ParallelConfig(tp=tp, pp=pp, cp=cp, cp_ffn=ffn)
    for tp, pp, cp in product(range(1, 5), range(1, 5), range(1, 4))
    for ffn in ("data", "tensor")
    if tp * pp * cp <= 12
]


@given(total=st.integers(0, 100), parts=st.integers(1, 20))
def test_shares_are_contiguous_and_even(total: int, parts: int) -> None:
    shares = [split(total, parts=parts, index=index) for index in range(parts)]
    assert [item for share in shares for item in share] == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_ranks_and_places_are_one_to_one(layout: ParallelConfig) -> None:
    places = [layout.place(rank) for rank in range(layout.num_ranks)]
    assert len(set(places)) == layout.num_ranks
    assert [layout.rank_of(place) for place in places] == list(range(layout.num_ranks))
    assert places[0].stage == layout.pp - 1
    assert (places[0].shard, places[0].tensor) == (0, 0)
    for rank in range(layout.num_ranks):
        assert rank in layout.tensor_ranks(rank)
        assert len(layout.tensor_ranks(rank)) == layout.tp
        parts = [layout.weight_part(mate) for mate in layout.weight_ranks(rank)]
        assert parts == [(index, len(parts)) for index in range(len(parts))]
        assert layout.weight_ranks(rank)[layout.weight_part(rank)[0]] == rank
        assert {layout.place(mate).stage for mate in layout.weight_ranks(rank)} == {places[rank].stage}
        heads = [layout.head_part(mate) for mate in layout.head_ranks(rank)]
        assert heads == [(index, len(parts) * layout.pp) for index in range(len(heads))]
        assert layout.head_ranks(rank)[layout.head_part(rank)[0]] == rank
        assert set(layout.weight_ranks(rank)) <= set(layout.head_ranks(rank))
        assert rank in layout.cache_ranks(rank)
        assert len(layout.cache_ranks(rank)) == layout.cp
        if (following := layout.next_rank(rank)) is not None:
            assert layout.previous_rank(following) == rank
    assert sum(layout.next_rank(rank) is None for rank in range(layout.num_ranks)) == layout.tp * layout.cp


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_every_part_is_held_by_the_ranks_that_should_hold_it(spec: ModelSpec) -> None:
    num_checked = 0
    for layout in LAYOUTS:
        try:
            check_parallel(spec, layout, num_workers=layout.num_ranks)
        except InvalidArgumentError:
            continue
        num_checked += 1
        shards = [shard_of(spec, layout, rank=rank) for rank in range(layout.num_ranks)]
        num_copies = layout.cp if layout.cp_ffn == "data" else 1  # of every piece of weight
        heads, rows, experts = Counter[tuple[int, int]](), Counter[int](), Counter[tuple[int, int]]()
        head_rows = Counter[int]()
        for shard in shards:
            for layer in shard.layers:
                heads.update((layer, head) for head in shard.query_heads)
                experts.update((layer, expert) for expert in shard.experts)
            rows.update(shard.vocab if shard.is_first else ())
            head_rows.update(shard.head)
            group = spec.num_heads // spec.num_kv_heads
            assert {head // group for head in shard.query_heads} == set(shard.kv_heads)
            assert len(shard.query_heads) % len(shard.kv_heads) == 0
        num_experts = spec.experts.num_experts if spec.experts else 0
        assert heads == dict.fromkeys(product(range(spec.num_layers), range(spec.num_heads)), num_copies)
        assert experts == dict.fromkeys(product(range(spec.num_layers), range(num_experts)), num_copies)
        assert rows == head_rows == dict.fromkeys(range(spec.vocab_size), num_copies)
    assert num_checked > 10


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_whole_weighs_what_the_model_does(spec: ModelSpec) -> None:
    assert shard_weight_bytes(spec, whole(spec)) == spec.weight_bytes


def test_shares_without_copies_weigh_together_what_the_model_does() -> None:
    for tp, pp in product((1, 2, 4), (1, 2, 5)):
        layout = ParallelConfig(tp=tp, pp=pp)
        shards = [shard_of(SPEC, layout, rank=rank) for rank in range(layout.num_ranks)]
        copies = (tp - 1) * SPEC.max_position * SPEC.hidden_size  # learned positions are on each of the first stage
        total = sum(shard_weight_bytes(SPEC, shard) for shard in shards)
        assert total == SPEC.weight_bytes + copies * SPEC.dtype_bytes


@pytest.mark.parametrize(
    ("layout", "num_workers", "field", "text"),
    [
        (ParallelConfig(tp=3), 3, "tp", "Use --tp 2"),
        (ParallelConfig(tp=24), 24, "tp", "Use --tp 12"),
        (ParallelConfig(pp=6), 6, "pp", "Use --pp 5, which needs 5 workers."),
        (ParallelConfig(tp=2, pp=2), 3, "tp", "needs 4 workers; there are 3"),
        (ParallelConfig(pp=9), 3, "pp", "pp is 9, and the model has 5 layers."),
        (ParallelConfig(pp=9), 3, "pp", "Use --pp 3, which needs 3 workers."),
        (ParallelConfig(pp=2, stage_layers=(2, 2)), 2, "stage_layers", "2,2 are not 2 stages of 5 layers"),
        (ParallelConfig(pp=2, stage_layers=(2, 2)), 2, "stage_layers", "Use --pp 2 --stage-layers 3,2, which"),
        (ParallelConfig(pp=3, stage_layers=(1, 4)), 3, "stage_layers", "Use --pp 3 --stage-layers 2,2,1, which"),
        (ParallelConfig(pp=2, stage_layers=(5, 0)), 2, "stage_layers", "Use --pp 2 --stage-layers 3,2, which"),
        (ParallelConfig(tp=3, pp=2, stage_layers=(1, 4)), 6, "tp", "Use --tp 2 --pp 2 --stage-layers 1,4, which"),
        (ParallelConfig(pp=6, stage_layers=(1,) * 6), 1, "pp", "Use one worker."),
        (ParallelConfig(pp=2, stage_layers=(2, 2)), 2, "stage_layers", "Use --pp 2 --stage-layers 3,2, which needs 2"),
        (ParallelConfig(pp=2, stage_layers=(0, 5)), 2, "stage_layers", "0,5 are not 2 stages"),
        (ParallelConfig(pp=4), 3, "pp", "Use --pp 3, which needs 3 workers."),
        (ParallelConfig(cp=4), 2, "cp", "Use --cp 2, which needs 2 workers."),
        (ParallelConfig(cp=2, cp_ffn="both"), 2, "cp_ffn", "must be one of data, tensor"),
        (ParallelConfig(tp=2, cp_ffn="tensor"), 2, "cp_ffn", "Give --cp 2 or more, or leave --cp-ffn out."),
        (ParallelConfig(cp=5, cp_ffn="tensor"), 5, "cp", "12 heads over 2 KV heads cannot be split in 5"),
        (ParallelConfig(cp=5, cp_ffn="tensor"), 5, "cp", "Use --cp 5, which needs 5 workers."),
        (ParallelConfig(cp=5, cp_ffn="tensor"), 4, "cp", "Use --cp 4 --cp-ffn tensor, which needs 4 workers."),
        (ParallelConfig(cp=0), 1, "cp", "must be at least 1"),
    ],
)
def test_what_does_not_go_is_refused_with_what_does(
    layout: ParallelConfig, num_workers: int, field: str, text: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_parallel(replace(SPEC, num_kv_heads=2), layout, num_workers=num_workers)
    assert caught.value.field == field
    assert text in str(caught.value)


def test_an_encoder_has_no_cache_to_share() -> None:
    encoder = replace(SPEC, num_kv_heads=12, encoder=EncoderSpec(num_positions=64))
    check_parallel(encoder, ParallelConfig(tp=2, pp=2), num_workers=4)
    with pytest.raises(InvalidArgumentError, match="no keys and values to share over cp 2") as caught:
        check_parallel(encoder, ParallelConfig(cp=2), num_workers=2)
    assert caught.value.field == "cp"


def test_experts_are_spread_over_all_that_share_weights() -> None:
    spec = replace(SPEC, num_kv_heads=12, experts=EXPERTS)
    check_parallel(spec, ParallelConfig(tp=2, cp=3, cp_ffn="tensor"), num_workers=6)
    with pytest.raises(InvalidArgumentError, match="tp 4 x cp 3 makes 12 parts, and the model has 6 experts"):
        check_parallel(spec, ParallelConfig(tp=4, cp=3, cp_ffn="tensor"), num_workers=12)
    check_parallel(spec, ParallelConfig(tp=4, cp=3), num_workers=12)


def test_a_layout_is_written_as_it_is_asked_for() -> None:
    layout = ParallelConfig(tp=2, pp=2, cp=4, stage_layers=(3, 2), cp_ffn="tensor")
    assert layout.flags == "--tp 2 --pp 2 --cp 4 --stage-layers 3,2 --cp-ffn tensor"
    assert ParallelConfig().flags == "--tp 1"


@given(
    tp=st.integers(1, 6),
    pp=st.integers(1, 6),
    cp=st.integers(1, 3),
    ffn=st.sampled_from(["data", "tensor"]),
    num_workers=st.integers(1, 8),
)
def test_the_nearest_layout_works_and_none_with_more_ranks_does(
    tp: int, pp: int, cp: int, ffn: str, num_workers: int
) -> None:
    wanted = ParallelConfig(tp=tp, pp=pp, cp=cp, cp_ffn=ffn)
    nearest = nearest_parallel(SPEC, wanted, num_workers=num_workers)
    check_parallel(SPEC, nearest, num_workers=num_workers)
    for layout in LAYOUTS:
        if layout.tp <= tp and layout.pp <= pp and layout.cp <= cp and layout.num_ranks > nearest.num_ranks:
            with pytest.raises(InvalidArgumentError):
                check_parallel(SPEC, layout, num_workers=num_workers)
