"""Plans for groups of stages and cache shards: what ranks hold adds up, and what is bent is caught."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.model import ExpertsSpec, ModelSpec
from headway.core.parallel_config import ParallelConfig
from headway.core.plan.serving import Assignment, EngineLimits, ServingPlan
from headway.core.shard import shard_of
from headway.planner.certify.certificate import find_violations
from headway.planner.certify.explanation import explain
from headway.planner.serving.stages import balance_stages, with_fastest_stages
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import planner_pb2

GIB = 1024**3
MIB = 1024**2
PROPERTY = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)


@st.composite
def layouts(draw: st.DrawFn) -> ParallelConfig:
    tp, pp, cp = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    cp_ffn = draw(st.sampled_from(["data", "tensor"])) if cp > 1 else "data"
    assume(tp * pp * cp > 1)
    return ParallelConfig(tp=tp, pp=pp, cp=cp, cp_ffn=cp_ffn)


def limits_of(layout: ParallelConfig, **changes: Any) -> EngineLimits:
    return EngineLimits(tp=layout.tp, pp=layout.pp, cp=layout.cp, cp_ffn=layout.cp_ffn, **changes)


@pytest.fixture
def plan_of(plan_for: Any, make_worker: Any) -> Callable[..., ServingPlan]:
    """A plan for one model on one group."""

    def make(model: Any, limits: EngineLimits, **hardware: Any) -> ServingPlan:
        workers = [make_worker(f"worker-{index}", **hardware) for index in range(limits.parallel.num_ranks)]
        plan: ServingPlan = plan_for([model], workers, limits=limits)
        return plan

    return make


@PROPERTY
@given(data=st.data(), layout=layouts())
def test_what_ranks_hold_adds_up_to_the_model_and_is_certified(
    data: st.DataObject, layout: ParallelConfig, models_strategy: Any, plan_of: Any
) -> None:
    model = data.draw(models_strategy)[0]
    limits = limits_of(layout, host_cache_bytes=data.draw(st.sampled_from([None, GIB])))
    try:
        plan = plan_of(model, limits, memory_bytes=data.draw(st.sampled_from([2, 16, 128])) * GIB)
    except (InvalidArgumentError, FailedPreconditionError):
        assume(False)
    assert find_violations(plan) == []
    assert from_pb(to_pb(plan, planner_pb2.ServingPlan), ServingPlan) == plan
    check_sums(plan.assignments[0], model.spec)


def check_sums(assignment: Assignment, spec: ModelSpec) -> None:
    parallel = assignment.parallel
    _, parts = parallel.weight_part(0)
    assert assignment.num_blocks % parallel.cp == assignment.num_host_blocks % parallel.cp == 0
    num_tokens = assignment.num_blocks * assignment.block_size
    assert num_tokens >= assignment.max_model_len
    kv_bytes = sum(share.kv_cache_bytes for share in assignment.shares)
    weight_bytes = sum(share.weight_bytes for share in assignment.shares)
    if parts <= spec.num_kv_heads:  # else some ranks keep the same head
        assert kv_bytes == num_tokens * spec.kv_bytes_per_token
    num_copies = 1 if parallel.cp_ffn == "tensor" else parallel.cp
    has_whole_parts = spec.rope is None or spec.experts is not None  # positions and routers are on every part
    if parts <= spec.num_kv_heads and not has_whole_parts:
        assert weight_bytes == num_copies * spec.weight_bytes
    assert kv_bytes >= num_tokens * spec.kv_bytes_per_token
    assert weight_bytes >= num_copies * spec.weight_bytes
    for shares in (by_shard(assignment, shard) for shard in range(parallel.cp)):
        shard_kv_bytes = sum(share.kv_cache_bytes for share in shares)
        assert shard_kv_bytes >= num_tokens // parallel.cp * spec.kv_bytes_per_token
        layers = sorted({layer for s in shares for layer in range(s.first_layer, s.first_layer + s.num_layers)})
        assert layers == list(range(spec.num_layers))


def by_shard(assignment: Assignment, shard: int) -> list[Any]:
    parallel = assignment.parallel
    return [share for rank, share in enumerate(assignment.ranks) if parallel.place(rank).shard == shard]


def bend_rank(assignment: Assignment, rank: int, **changes: int) -> Assignment:
    """The assignment with something added to a rank's share; of the leader it says the same itself."""
    ranks = list(assignment.ranks)
    ranks[rank] = replace(ranks[rank], **{name: getattr(ranks[rank], name) + more for name, more in changes.items()})
    bytes_of = ("weight_bytes", "kv_cache_bytes", "reserved_bytes", "host_cache_bytes")
    return replace(assignment, ranks=tuple(ranks), **{name: getattr(ranks[0], name) for name in bytes_of})


MUTATIONS: dict[str, Callable[[Assignment, int], Assignment]] = {
    "a layer more": lambda a, rank: bend_rank(a, rank, num_layers=1),
    "a layer fewer": lambda a, rank: bend_rank(a, rank, num_layers=-1),
    "other layers": lambda a, rank: bend_rank(a, rank, first_layer=1),
    "a KV byte more": lambda a, rank: bend_rank(a, rank, kv_cache_bytes=1),
    "KV blocks of the whole group": lambda a, rank: bend_rank(
        a, rank, kv_cache_bytes=a.ranks[rank].kv_cache_bytes * a.parallel.num_ranks
    ),
    "a host byte more": lambda a, rank: bend_rank(a, rank, host_cache_bytes=1),
    "fewer weights": lambda a, rank: bend_rank(a, rank, weight_bytes=-a.ranks[rank].weight_bytes // 2),
    "more than there is": lambda a, rank: bend_rank(a, rank, reserved_bytes=2**40),
    "a block more": lambda a, _: replace(a, num_blocks=a.num_blocks + 1),
    "a block more on each shard": lambda a, _: replace(a, num_blocks=a.num_blocks + a.parallel.cp),
    "a host block more": lambda a, _: replace(a, num_host_blocks=a.num_host_blocks + 1),
    "longer than the pool": lambda a, _: replace(a, max_model_len=a.num_blocks * a.block_size + 1),
    "a stage more": lambda a, _: replace(a, parallel=replace(a.parallel, pp=a.parallel.pp + 1)),
    "a shard more": lambda a, _: replace(a, parallel=replace(a.parallel, cp=a.parallel.cp + 1)),
    "stages that do not add up": lambda a, _: replace(a, parallel=replace(a.parallel, stage_layers=(1,) * 9)),
    "an unknown way": lambda a, _: replace(a, parallel=replace(a.parallel, cp_ffn="both")),
    "one worker twice": lambda a, rank: replace(
        a, ranks=tuple(replace(share, worker_id=a.ranks[rank].worker_id) for share in a.ranks)
    ),
}


@PROPERTY
@given(layout=layouts(), name=st.sampled_from(list(MUTATIONS)), data=st.data())
def test_a_bent_layout_is_caught(
    layout: ParallelConfig, name: str, data: st.DataObject, make_model: Any, plan_of: Any
) -> None:
    model = make_model(num_heads=24, num_kv_heads=12, tied_embeddings=data.draw(st.booleans()))
    plan = plan_of(model, limits_of(layout, host_cache_bytes=GIB))
    rank = data.draw(st.integers(0, layout.num_ranks - 1))
    bent = MUTATIONS[name](plan.assignments[0], rank)
    assert find_violations(plan) == []
    assert find_violations(replace(plan, assignments=(bent,))) != []


def test_stages_in_another_order_are_caught(make_model: Any, plan_of: Any) -> None:
    plan = plan_of(make_model(num_layers=7), EngineLimits(stage_layers=(3, 2, 2)))
    (assignment,) = plan.assignments
    assert [(share.first_layer, share.num_layers) for share in assignment.ranks] == [(5, 2), (3, 2), (0, 3)]
    leader, middle, first = assignment.ranks
    swapped = replace(assignment, ranks=(leader, first, middle))
    violations = find_violations(replace(plan, assignments=(swapped,)))
    assert any("rank 1 is in stage 1, which has 2 layers from 3 on; it has 3 from 0 on" in text for text in violations)


def test_the_first_stage_has_the_embedding_and_all_share_the_head(make_model: Any, plan_of: Any) -> None:
    row_bytes = 512 * 4
    for is_tied in (False, True):
        model = make_model(tied_embeddings=is_tied, num_layers=6)
        (assignment,) = plan_of(model, EngineLimits(stage_layers=(2, 2, 2))).assignments
        last, middle, first = (share.weight_bytes for share in assignment.ranks)
        assert last == middle  # with 10,667 rows of the head
        assert first - middle == (32_000 - 1) * row_bytes


def test_cache_shards_have_weights_in_full_or_share_them(make_model: Any, plan_of: Any) -> None:
    model = make_model()
    (data,) = plan_of(model, EngineLimits(cp=2, tp=2)).assignments
    (tensor,) = plan_of(model, EngineLimits(cp=2, tp=2, cp_ffn="tensor")).assignments
    assert [share.weight_bytes for share in data.ranks] == [model.spec.weight_bytes // 2] * 4
    assert [share.weight_bytes for share in tensor.ranks] == [model.spec.weight_bytes // 4] * 4
    block_bytes = 16 * model.spec.kv_bytes_per_token // 2  # the heads of a half of tp, both times
    for assignment in (data, tensor):
        assert {share.kv_cache_bytes for share in assignment.ranks} == {assignment.num_blocks // 2 * block_bytes}


@pytest.mark.parametrize(("device", "name"), [("cpu", ""), ("cuda", "NVIDIA H100")])
def test_cache_shards_together_hold_a_sequence_that_none_of_them_could(
    device: str, name: str, make_model: Any, plan_of: Any
) -> None:
    hardware = {"device": device, "name": name, "memory_bytes": 3 * GIB}
    lengths = {}
    for cp in (1, 2, 4):
        plan = plan_of(make_model(max_position=10**7), EngineLimits(cp=cp, max_num_batched_tokens=128), **hardware)
        lengths[cp] = plan.assignments[0].max_model_len
        assert find_violations(plan) == []
    assert lengths[2] > 1.9 * lengths[1]
    assert lengths[4] > 3.8 * lengths[1]
    asked = make_model(max_position=10**7, max_model_len=3 * lengths[1])
    with pytest.raises(FailedPreconditionError, match="fits no worker") as caught:
        plan_of(asked, EngineLimits(max_num_batched_tokens=128), **hardware)
    assert "workers of 3.0 GiB each (--" in caught.value.hint
    (assignment,) = plan_of(asked, EngineLimits(cp=4, max_num_batched_tokens=128), **hardware).assignments
    assert assignment.max_model_len == 3 * lengths[1]


def test_the_operators_pool_is_that_of_each_worker(make_model: Any, plan_of: Any) -> None:
    model = make_model()
    pool = {"kv_cache_bytes": 256 * MIB, "host_cache_bytes": 64 * MIB}
    (alone,) = plan_of(model, EngineLimits(**pool)).assignments
    for axis, size in product(("tp", "pp", "cp"), (2, 4)):
        even = (8 // size,) * size if axis == "pp" else ()
        (assignment,) = plan_of(model, EngineLimits(**pool, **{axis: size}, stage_layers=even)).assignments
        assert assignment.num_blocks == size * alone.num_blocks
        assert assignment.num_host_blocks == size * alone.num_host_blocks
        assert {share.kv_cache_bytes for share in assignment.ranks} == {256 * MIB}


def test_a_pool_of_shards_may_be_smaller_than_a_sequence(make_model: Any, plan_of: Any) -> None:
    model = make_model(max_model_len=1024)
    needed_bytes = 1024 * model.spec.kv_bytes_per_token
    (assignment,) = plan_of(model, EngineLimits(cp=4, kv_cache_bytes=needed_bytes // 4)).assignments
    assert assignment.num_blocks * assignment.block_size == 1024
    with pytest.raises(InvalidArgumentError, match="kv_cache_bytes is"):
        plan_of(model, EngineLimits(cp=4, kv_cache_bytes=needed_bytes // 4 - 1))


def test_more_sequences_run_where_several_batches_are_under_way(make_model: Any, plan_of: Any) -> None:
    sizes = []
    for pp in (1, 2, 4):
        (assignment,) = plan_of(make_model(), EngineLimits(pp=pp, max_num_batched_tokens=1024)).assignments
        sizes.append(assignment.max_num_seqs)
    assert sizes == [128, 256, 512]


@given(
    fixed=st.lists(st.integers(-30, 30), min_size=2, max_size=4),
    layer_bytes=st.integers(1, 9),
    num_layers=st.integers(4, 12),
)
def test_no_split_of_equal_layers_leaves_less_to_lack(fixed: list[int], layer_bytes: int, num_layers: int) -> None:
    def lacking(sizes: tuple[int, ...]) -> list[int]:
        return [more + size * layer_bytes for more, size in zip(fixed, sizes, strict=True)]

    splits = [
        tuple(stop - start for start, stop in zip((0, *cuts), (*cuts, num_layers), strict=True))
        for cuts in combinations(range(1, num_layers), len(fixed) - 1)
    ]
    least = min(max(lacking(split)) for split in splits)
    for start in splits:
        balanced = balance_stages(start, lacking)
        assert sum(balanced) == num_layers
        assert max(lacking(balanced)) == least


@pytest.mark.parametrize("pool_bytes", [None, 29 * MIB])
def test_stages_are_the_fastest_that_fit(pool_bytes: int | None, make_model: Any, plan_of: Any) -> None:
    """Experts make the second half of the layers heavier. All splits are tried in the operator's name, to compare."""
    experts = ExpertsSpec(
        num_experts=2, num_experts_per_tok=1, intermediate_size=1408, sparse_layers=(False,) * 12 + (True,) * 12
    )
    model = make_model(vocab_size=128_000, num_layers=24, max_model_len=1024, experts=experts)
    limits = EngineLimits(pp=2, max_num_seqs=64, max_num_batched_tokens=128, kv_cache_bytes=pool_bytes)
    fastest = with_fastest_stages(model.spec, ParallelConfig(pp=2)).stage_layers
    assert fastest[0] > 12

    def stages(memory_mib: int, *sizes: int) -> tuple[int, ...] | None:
        """Of the plan; None where there is none."""
        try:
            plan = plan_of(model, replace(limits, stage_layers=sizes), memory_bytes=memory_mib * MIB)
        except (FailedPreconditionError, InvalidArgumentError):  # the latter where the pool is too small
            return None
        assert find_violations(plan) == []
        chosen: tuple[int, ...] = plan.assignments[0].parallel.stage_layers or (12, 12)
        is_named = f"{chosen[0]}, {chosen[1]} layers: that was asked for, or it evens out" in " ".join(explain(plan))
        assert is_named == bool(plan.assignments[0].parallel.stage_layers)
        return chosen

    outcomes = set()
    for memory_mib in (*range(920, 1060, 20), 1400):
        fitting = [sizes for size in range(1, 24) if (sizes := stages(memory_mib, size, 24 - size)) is not None]
        chosen = stages(memory_mib)
        outcomes.add("none" if chosen is None else "fastest" if chosen == fastest else "fitting")
        if fastest in fitting:
            assert chosen == fastest
        else:
            assert chosen in (fitting or [None])
    assert outcomes == {"none", "fastest", "fitting"} - ({"fastest"} if pool_bytes else set())


@pytest.mark.parametrize("num_layers", [8, 9, 11])
@pytest.mark.parametrize("num_stages", [2, 3, 4])
def test_stages_of_equal_layers_are_even_however_large_the_head_is(
    num_layers: int, num_stages: int, make_model: Any
) -> None:
    for vocab_size in (512, 128_000):
        spec = make_model(vocab_size=vocab_size, num_layers=num_layers).spec
        assert with_fastest_stages(spec, ParallelConfig(pp=num_stages)) == ParallelConfig(pp=num_stages)


@pytest.mark.parametrize("num_dense", range(9))
def test_no_split_in_two_of_dense_and_sparse_layers_has_a_faster_slower_stage(num_dense: int, make_model: Any) -> None:
    is_sparse = tuple(layer >= num_dense for layer in range(8))
    experts = ExpertsSpec(num_experts=6, num_experts_per_tok=2, intermediate_size=900, sparse_layers=is_sparse)
    spec = make_model(num_layers=8, experts=experts).spec
    attention = 2 * spec.head_dim * (spec.num_heads + spec.num_kv_heads)
    dense, sparse = attention + 3 * spec.intermediate_size, attention + 6 * (3 * 900 + 1)  # with the router

    def slower(first: int) -> int:
        weights = [sparse if each else dense for each in is_sparse]
        return max(sum(weights[:first]), sum(weights[first:]))

    first, _ = with_fastest_stages(spec, ParallelConfig(pp=2)).stage_layers or (4, 4)
    assert slower(first) == min(map(slower, range(1, 8)))


def test_stages_that_the_operator_chose_stay(make_model: Any, plan_of: Any) -> None:
    (assignment,) = plan_of(make_model(), EngineLimits(stage_layers=(3, 5))).assignments
    assert assignment.parallel == ParallelConfig(pp=2, stage_layers=(3, 5))
    assert [(share.first_layer, share.num_layers) for share in assignment.ranks] == [(3, 5), (0, 3)]


REFUSALS: list[tuple[EngineLimits, int, str, str]] = [
    (EngineLimits(pp=9), 9, "pp is 9, and the model has 8 layers", "Use --pp 8, which needs 8 workers"),
    (EngineLimits(pp=2, stage_layers=(3, 4)), 2, "stages 3,4 are not 2 stages of 8 layers", "--stage-layers 4,4"),
    (EngineLimits(pp=3, stage_layers=(3, 5)), 3, "stages 3,5 are not 3 stages of 8 layers", "--stage-layers 3,3,2"),
    (EngineLimits(tp=2, cp_ffn="tensor"), 2, "takes cp 2 or more", "Give --cp 2 or more, or leave --cp-ffn out"),
    (EngineLimits(cp=2, cp_ffn="both"), 2, "must be one of data, tensor", "Use --cp 2"),
    (EngineLimits(cp=3, tp=2, cp_ffn="tensor"), 6, "cannot be split in 6", "Use --tp 2 --cp 3, which needs 6"),
    (EngineLimits(cp=2, pp=2), 3, "pp 2 x cp 2 needs 4 workers; there are 3", "Use --cp 2, which needs 2"),
]


@pytest.mark.parametrize(("limits", "num_workers", "reason", "hint"), REFUSALS)
def test_what_does_not_go_is_refused_with_what_does(
    limits: EngineLimits, num_workers: int, reason: str, hint: str, plan_for: Any, make_model: Any, make_worker: Any
) -> None:
    workers = [make_worker(f"worker-{index}") for index in range(num_workers)]
    with pytest.raises(InvalidArgumentError, match=reason) as caught:
        plan_for([make_model()], workers, limits=limits)
    assert hint in (caught.value.hint or "")


def test_each_rank_is_explained(make_model: Any, plan_of: Any) -> None:
    text = " ".join(explain(plan_of(make_model(), EngineLimits(tp=2, cp=2, stage_layers=(4, 4)))))
    assert "with tp 2 x pp 2 x cp 2. worker-0 leads" in text
    assert "each stage has a batch of its own under way." in text
    assert "Outside attention the shards compute a share of a step's tokens each, with the weights in full." in text
    assert (
        "worker-5 has layers 0 to 3 of 8 with the embedding and 1/2 of the head, 4 of 8 heads, and the keys and values "
        "of 2 of 4 KV heads, for 1/2 of each sequence."
    ) in text
    text = " ".join(explain(plan_of(make_model(), EngineLimits(cp=2, cp_ffn="tensor"))))
    assert "Outside attention the shards share the weights." in text
    assert (
        "worker-1 has layers 0 to 7 of 8 with the embedding and the head, 4 of 8 heads, and the keys and values of "
        "4 of 4 KV heads, for 1/2 of each sequence."
    ) in text


def test_ranks_have_the_heads_that_the_plan_counts(make_model: Any, plan_of: Any) -> None:
    """Where KV heads do not come out even over the parts, each rank keeps those of all parts that it exchanges with."""
    model = make_model(num_heads=24, num_kv_heads=6)
    plan = plan_of(model, EngineLimits(tp=2, cp=2, cp_ffn="tensor"))
    (assignment,) = plan.assignments
    assert find_violations(plan) == []
    for rank, share in enumerate(assignment.ranks):
        mates = assignment.parallel.cache_ranks(rank)
        shards = [shard_of(model.spec, assignment.parallel, rank=mate) for mate in mates]
        heads = {head for shard in shards for head in shard.kv_heads}
        assert share.kv_cache_bytes == assignment.num_blocks // 2 * 16 * 2 * 8 * len(heads) * 64 * 4
