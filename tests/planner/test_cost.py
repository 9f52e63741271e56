"""The cost model of groups: its limits, the volumes it rests on, and what it fits."""

from dataclasses import fields, replace
from itertools import product
from typing import Any

import pytest

from benchmarks.parallel.thesis import derived_cp, derived_tp, sent_elements, text_cp, text_tp
from headway.core.cluster import Fabric
from headway.core.links import UsualLinks
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.planner.serving.collectives import collectives_of, head_collectives_of
from headway.planner.serving.cost import GroupCost, StepLoad, cost_of_group
from headway.planner.serving.device_roofline import NVLINK, Roofline, roofline_of
from headway.planner.serving.fit import fit_fabric
from headway.planner.serving.roofline import estimate_latency

GPU = Roofline(flops=1e14, bytes_per_s=1e12, step_overhead_s=2e-3, sequence_overhead_s=1e-5, table_entry_s=5e-8)
FREE = Fabric(latency_s=0.0, bytes_per_s=float("inf"))
DECODES = StepLoad(num_decodes=32, context_tokens=32 * 1000)
PREFILL = StepLoad(prefill_tokens=512, prefill_context=100)
LAYOUTS = [
    ParallelConfig(tp=tp, pp=pp, cp=cp, cp_ffn=ffn)
    for tp, pp, cp, ffn in product((1, 2, 4), (1, 2, 4), (1, 2, 4), ("data", "tensor"))
    if cp > 1 or ffn == "data"
]


def cost(spec: Any, parallel: ParallelConfig, fabric: Fabric = NVLINK, roofline: Roofline = GPU) -> GroupCost:
    return cost_of_group(spec, parallel, roofline=roofline, links=UsualLinks(fabric=fabric))


@pytest.fixture
def spec(make_spec: Any) -> Any:
    return make_spec(num_heads=16, num_kv_heads=16, dtype="bfloat16")


def test_one_rank_is_the_plain_roofline(make_spec: Any, make_worker: Any) -> None:
    spec, hardware = make_spec(), make_worker(device="cuda", name="NVIDIA H100").hardware
    roofline, latency = roofline_of(hardware), estimate_latency(spec, hardware)
    flops, head_flops = roofline.flops / 2, 2 * spec.vocab_size * spec.hidden_size
    assert latency.base_s == pytest.approx(roofline.step_overhead_s + spec.weight_bytes / roofline.bytes_per_s)
    assert latency.per_prefill_token_s == pytest.approx((spec.flops_per_token - head_flops) / flops)
    assert latency.per_prefill_pair_s == pytest.approx(4 * spec.num_layers * spec.num_heads * spec.head_dim / flops)
    assert latency.per_decode_s == pytest.approx(spec.flops_per_token / flops + roofline.sequence_overhead_s)
    read_s = spec.kv_bytes_per_token / roofline.bytes_per_s
    assert latency.per_context_token_s == pytest.approx(read_s + roofline.table_entry_s / 16)


def test_an_estimate_is_the_group_cost_projected(spec: Any, make_worker: Any) -> None:
    hardware = make_worker(device="cuda", name="NVIDIA H100").hardware
    for parallel in LAYOUTS:
        group = cost(spec, parallel, roofline=roofline_of(hardware))
        latency = estimate_latency(spec, hardware, parallel)
        decode_s = latency.decode_s(num_decodes=32, context_tokens=32_000)
        if parallel.pp == 1:
            assert decode_s == pytest.approx(group.step(DECODES).total_s)
        else:  # each coefficient is that of its slowest stage
            turn_s = group.turn(DECODES).total_s
            assert 0.999 * turn_s <= decode_s <= 1.2 * turn_s


@pytest.mark.parametrize("parallel", LAYOUTS, ids=str)
def test_a_free_fabric_leaves_no_communication_and_no_work_is_lost(parallel: ParallelConfig, spec: Any) -> None:
    group, alone = cost(spec, parallel, FREE), cost(spec, SINGLE)
    for load in (DECODES, PREFILL):
        assert group.step(load).communication_s == 0
        at_once = parallel.tp * parallel.cp  # in the layers; all ranks in the head
        layers_s = sum(stage.step(load).compute_s for stage in group.stages)
        shared_s = at_once * layers_s + parallel.num_ranks * group.head.step(load).compute_s
        assert shared_s >= 0.999 * alone.step(load).compute_s
    assert cost(spec, parallel).step(DECODES).communication_s >= 0


@pytest.mark.parametrize("parallel", LAYOUTS, ids=str)
def test_more_to_do_takes_longer(parallel: ParallelConfig, spec: Any) -> None:
    group = cost(spec, parallel)
    for load in (DECODES, PREFILL):
        for field in fields(StepLoad):
            more = replace(load, **{field.name: 2 * getattr(load, field.name) + 1})
            assert group.step(more).total_s >= group.step(load).total_s
            assert group.turn(more).total_s >= group.turn(load).total_s
    slower = Fabric(latency_s=2 * NVLINK.latency_s, bytes_per_s=NVLINK.bytes_per_s / 2)
    assert cost(spec, parallel, slower).step(DECODES).communication_s == pytest.approx(
        2 * group.step(DECODES).communication_s
    )


def test_a_pipeline_takes_the_sum_of_its_stages_alone_and_the_slowest_in_turns_and_the_head(make_spec: Any) -> None:
    spec = make_spec(num_layers=9)
    group = cost(spec, ParallelConfig(pp=2, stage_layers=(6, 3)))
    stages = [stage.step(DECODES).total_s for stage in group.stages]
    assert group.step(DECODES).total_s == pytest.approx(sum(stages) + group.head.step(DECODES).total_s)
    half = StepLoad(num_decodes=16, context_tokens=16 * 1000)
    slowest_s = max(stage.step(half).total_s for stage in group.stages)
    assert group.turn(DECODES).total_s == pytest.approx(2 * (slowest_s + group.head.step(half).total_s))


def test_all_stages_have_an_equal_part_in_the_head(make_spec: Any) -> None:
    spec, load = make_spec(vocab_size=32_000), StepLoad(num_decodes=32)
    alone = cost(spec, SINGLE, FREE).head.step(load)
    for num_stages in (2, 4):
        head = cost(spec, ParallelConfig(pp=num_stages), FREE).head.step(load)
        assert head.compute_s == pytest.approx(alone.compute_s / num_stages)
        assert head.overhead_s == alone.overhead_s  # the leader samples by itself


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_tables_are_whole_on_each_rank_of_tp_and_shared_in_cp(num_ranks: int, spec: Any) -> None:
    tables = [
        cost(spec, parallel).stages[0].overhead.context_s
        for parallel in (SINGLE, ParallelConfig(tp=num_ranks), ParallelConfig(cp=num_ranks))
    ]
    assert tables == pytest.approx([GPU.table_entry_s / 16, GPU.table_entry_s / 16, GPU.table_entry_s / 16 / num_ranks])


@pytest.mark.parametrize(("num_ranks", "ffn"), list(product((2, 4, 8), ("data", "tensor"))))
def test_cache_volumes_follow_from_the_shapes(num_ranks: int, ffn: str, make_spec: Any) -> None:
    spec = make_spec(num_heads=16, num_kv_heads=8, dtype="bfloat16")
    parallel = ParallelConfig(cp=num_ranks, cp_ffn=ffn)
    by_name = {each.operation: each for each in collectives_of(spec, parallel, stage=0)}
    share = (num_ranks - 1) / num_ranks * spec.num_layers
    assert by_name["all_gather"].token_bytes == pytest.approx(share * (16 + 2 * 8) * spec.head_dim * 2)
    assert by_name["all_to_all"].token_bytes == pytest.approx(share * 16 * (spec.head_dim + 1) * 4)
    assert ("all_reduce" in by_name) == (ffn == "tensor")
    (gather,) = head_collectives_of(spec, parallel)
    assert gather.operation == "gather"
    assert gather.wanted_bytes == pytest.approx(spec.vocab_size * 4 / num_ranks)


def test_stages_pass_on_the_residual_stream(spec: Any) -> None:
    for tp, cp in ((1, 1), (2, 1), (1, 2)):
        parallel = ParallelConfig(tp=tp, pp=3, cp=cp)
        sent = [{e.operation: e for e in collectives_of(spec, parallel, stage=stage)}.get("send") for stage in range(3)]
        assert sent[2] is None
        for collective in sent[:2]:
            assert collective is not None
            assert collective.token_bytes == spec.hidden_size * 2 / cp


def test_the_text_and_the_derivation_agree_where_they_should(make_spec: Any) -> None:
    spec = make_spec(hidden_size=4096, num_heads=32, num_kv_heads=32, head_dim=128, dtype="bfloat16")
    shape = {"batch": 32, "hidden_size": 4096}
    assert text_cp(**shape, num_heads=32, num_ranks=2) == derived_cp(**shape, num_heads=32, num_ranks=2)
    for num_ranks in (2, 4, 8):
        tp, cp = ParallelConfig(tp=num_ranks), ParallelConfig(cp=num_ranks)
        assert text_tp(**shape, num_ranks=num_ranks) == num_ranks * derived_tp(**shape, num_ranks=num_ranks)
        assert sent_elements(spec, tp, batch=32) == pytest.approx(derived_tp(**shape, num_ranks=num_ranks))
        extra = (num_ranks - 1) / num_ranks * 32 * 4096  # the outputs once more, since they go in float32
        derived = derived_cp(**shape, num_heads=32, num_ranks=num_ranks)
        assert sent_elements(spec, cp, batch=32) == pytest.approx(derived + extra)


def test_a_fabric_is_fitted_to_what_was_measured() -> None:
    fabric = Fabric(latency_s=1e-4, bytes_per_s=2e9)
    samples = [(4**k * 1024, fabric.collective_s(4**k * 1024, num_ranks=2)) for k in range(8)]
    fit = fit_fabric(samples)
    assert fit.fabric.latency_s == pytest.approx(1e-4)
    assert fit.fabric.bytes_per_s == pytest.approx(2e9)
    assert fit.relative_error == pytest.approx(0, abs=1e-9)
    noisy = fit_fabric([(size, seconds * (1.2 if k % 2 else 0.8)) for k, (size, seconds) in enumerate(samples)])
    assert 0.1 < noisy.relative_error < 0.3
    with pytest.raises(ValueError, match="do not determine"):
        fit_fabric(samples[:1])
