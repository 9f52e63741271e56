"""How memory is split and batches are limited."""

from typing import Any

import pytest

from headway.core.engine_kind import EngineKind
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.model import ExpertsSpec
from headway.core.plan.serving import EngineLimits
from headway.planner.serving.batching import choose_batching
from headway.planner.serving.device_roofline import roofline_of
from headway.planner.serving.roofline import estimate_latency

GIB = 1024**3


def assignment_for(plan_for: Any, model: Any, worker: Any, **limits: Any) -> Any:
    return plan_for([model], [worker], limits=EngineLimits(**limits)).assignments[0]


@pytest.mark.parametrize(("memory_gib", "pool_gib"), [(8, 1), (16, 1), (32, 2), (64, 4), (512, 4)])
def test_on_a_cpu_the_pool_takes_a_sixteenth_from_1_to_4_gib(
    plan_for: Any, make_model: Any, make_worker: Any, memory_gib: int, pool_gib: int
) -> None:
    assignment = assignment_for(plan_for, make_model(max_position=8192), make_worker(memory_bytes=memory_gib * GIB))
    assert assignment.kv_cache_bytes == pool_gib * GIB


def test_on_a_gpu_the_pool_takes_all_that_is_left(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    worker = make_worker(memory_bytes=80 * GIB, device="cuda", name="NVIDIA H100")
    assignment = assignment_for(plan_for, make_model(max_position=131_072), worker)
    used_bytes = assignment.weight_bytes + assignment.reserved_bytes + assignment.kv_cache_bytes
    block_bytes = assignment.kv_cache_bytes // assignment.num_blocks
    assert 0 <= 80 * GIB - used_bytes < block_bytes
    assert assignment.max_num_batched_tokens >= 2048


def test_a_pool_never_holds_more_than_every_sequence_at_full_length(
    plan_for: Any, make_model: Any, make_worker: Any
) -> None:
    assignment = assignment_for(plan_for, make_model(max_model_len=100), make_worker(), max_num_seqs=4)
    assert assignment.num_blocks == 4 * 7


def test_a_host_tier_comes_besides_a_gpus_memory_and_out_of_a_cpu_workers(
    plan_for: Any, make_model: Any, make_worker: Any
) -> None:
    model, gpu = make_model(max_position=131_072), make_worker(memory_bytes=8 * GIB, device="cuda", name="NVIDIA H100")
    without = assignment_for(plan_for, model, gpu)
    tiered = assignment_for(plan_for, model, gpu, host_cache_bytes=GIB, preemption="swap")
    block_bytes = without.kv_cache_bytes // without.num_blocks
    assert tiered.num_blocks == without.num_blocks
    assert tiered.num_host_blocks == GIB // block_bytes
    assert tiered.host_cache_bytes == tiered.num_host_blocks * block_bytes
    with pytest.raises(FailedPreconditionError, match="fits no worker"):
        assignment_for(plan_for, model, make_worker(memory_bytes=8 * GIB), host_cache_bytes=8 * GIB)


@pytest.mark.parametrize(
    "limits", [{"preemption": "swap"}, {"preemption": "drop"}, {"num_draft_tokens": -1}, {"host_cache_bytes": -1}]
)
def test_limits_that_make_no_sense_are_refused(
    plan_for: Any, make_model: Any, make_worker: Any, limits: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(limits))):
        assignment_for(plan_for, make_model(), make_worker(), **limits)


def test_the_pool_grows_for_one_sequence_of_the_length_asked_for(
    plan_for: Any, make_model: Any, make_worker: Any
) -> None:
    model = make_model(max_model_len=400_000, max_position=524_288)
    assignment = assignment_for(plan_for, model, make_worker(memory_bytes=16 * GIB))
    assert assignment.num_blocks * assignment.block_size >= 400_000
    assert assignment.kv_cache_bytes > 4 * GIB


def test_without_a_wish_the_context_is_what_memory_allows(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    model = make_model(max_position=10_000_000)
    assignment = assignment_for(plan_for, model, make_worker(memory_bytes=2 * GIB))
    assert assignment.max_model_len == assignment.num_blocks * assignment.block_size
    assert 256 <= assignment.max_model_len < 10_000_000


def test_a_step_stays_short_on_a_slow_machine(make_spec: Any, make_worker: Any) -> None:
    slow, fast = make_worker(num_threads=1), make_worker(num_threads=64)
    large = make_spec(num_layers=32, hidden_size=4096, intermediate_size=14_336)
    limits = EngineLimits()
    on_slow = choose_batching(limits, device="cpu", estimate=estimate_latency(large, slow.hardware))
    on_fast = choose_batching(limits, device="cpu", estimate=estimate_latency(make_spec(), fast.hardware))
    assert (on_slow.max_num_batched_tokens, on_fast.max_num_batched_tokens) == (128, 512)


def test_vllm_computes_as_many_tokens_at_once_as_its_own_server(make_spec: Any, make_worker: Any) -> None:
    """That takes 2,048 tokens and 128 sequences on a CPU: `EngineArgs.get_batch_defaults` of vLLM 0.32."""
    estimate = estimate_latency(make_spec(num_layers=32, hidden_size=4096), make_worker(num_threads=1).hardware)
    batching = choose_batching(EngineLimits(), device="cpu", estimate=estimate, engine=EngineKind.VLLM)
    assert (batching.max_num_batched_tokens, batching.max_num_seqs) == (2048, 128)


def test_a_small_token_budget_bounds_the_sequences(make_spec: Any, make_worker: Any) -> None:
    estimate = estimate_latency(make_spec(), make_worker().hardware)
    batching = choose_batching(EngineLimits(max_num_batched_tokens=32), device="cpu", estimate=estimate)
    assert batching.max_num_seqs == 32
    batching = choose_batching(EngineLimits(max_num_seqs=2000), device="cpu", estimate=estimate)
    assert batching.max_num_batched_tokens == 2000


def test_an_estimate_counts_weights_once_and_halves_speed_in_float32(make_spec: Any, make_worker: Any) -> None:
    hardware = make_worker(device="cuda", name="NVIDIA A100-SXM4-80GB").hardware
    roofline = roofline_of(hardware)
    wide, narrow = make_spec(), make_spec(dtype="bfloat16")
    in_float32, in_bfloat16 = estimate_latency(wide, hardware), estimate_latency(narrow, hardware)
    assert in_float32.base_s == pytest.approx(roofline.step_overhead_s + wide.weight_bytes / roofline.bytes_per_s)
    assert in_float32.per_prefill_token_s == pytest.approx(2 * in_bfloat16.per_prefill_token_s)
    table_s = roofline.table_entry_s / 16
    kv_s = [estimate.per_context_token_s - table_s for estimate in (in_float32, in_bfloat16)]
    assert kv_s[0] == pytest.approx(2 * kv_s[1])
    assert in_float32.origin == "estimated"


def test_int8_holds_matrices_in_a_quarter_of_float32(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    kept, rounded = (
        assignment_for(plan_for, make_model(quantization=quantization), make_worker())
        for quantization in (None, "int8")
    )
    embedding_bytes = 4 * 32_000 * 512
    assert rounded.weight_bytes - embedding_bytes == (kept.weight_bytes - embedding_bytes) // 4
    assert rounded.kv_cache_bytes == kept.kv_cache_bytes


def test_a_sparse_model_needs_memory_for_all_experts_and_time_for_few(make_spec: Any, make_worker: Any) -> None:
    experts = ExpertsSpec(num_experts=16, num_experts_per_tok=2, intermediate_size=704)
    dense, sparse = make_spec(), make_spec(experts=experts)
    assert sparse.weight_bytes > 3 * dense.weight_bytes
    in_dense, in_sparse = (estimate_latency(spec, make_worker().hardware) for spec in (dense, sparse))
    assert in_sparse.per_prefill_token_s == pytest.approx(in_dense.per_prefill_token_s, rel=0.02)


def test_a_gpu_is_known_by_the_longest_of_its_names(make_worker: Any) -> None:
    by_name = {
        name: roofline_of(make_worker(device="cuda", name=name).hardware).bytes_per_s
        for name in ("NVIDIA L40S", "NVIDIA L4", "NVIDIA H200", "Strange GPU")
    }
    assert by_name["NVIDIA L40S"] > by_name["NVIDIA L4"]
    assert by_name["NVIDIA H200"] == 2.9e12
    assert by_name["Strange GPU"] > 0
