"""What a step leaves in the metrics."""

import asyncio
from dataclasses import replace

from prometheus_client import REGISTRY

from headway.core.engine_kind import EngineKind
from headway.core.load_order import LoadOrder
from headway.core.step_work import StepWork
from headway.engine.stats import StepStats
from headway.runner.parallel.collective_counters import CollectiveCounters, CollectiveKey
from headway.worker.metrics import CacheInfo, CollectiveMetrics, EngineInfo, StepMetrics

BEFORE = StepStats(
    num_steps=1,
    num_running=0,
    num_waiting=0,
    num_swapped=0,
    num_context_tokens=0,
    num_pending_prefill_tokens=0,
    num_preemptions=2,
    num_swaps=1,
    num_used_blocks=0,
    num_cached_blocks=0,
    num_free_blocks=100,
    num_used_host_blocks=0,
    num_prefix_queries=0,
    num_prefix_hits=0,
    num_prefill_tokens=0,
    num_decode_tokens=0,
    num_draft_tokens=10,
    num_accepted_tokens=4,
    num_moved_blocks=0,
    duration_s=0.01,
    work=StepWork(),
)


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"headway:{name}", {"model_name": "metered", **labels})


def test_a_step_tells_preemptions_by_kind_host_blocks_drafts_and_its_budget() -> None:
    metrics = StepMetrics("metered", stats=BEFORE, num_host_blocks=40, max_num_batched_tokens=64)
    after = replace(
        BEFORE,
        num_preemptions=7,
        num_swaps=3,
        num_swapped=2,
        num_used_blocks=25,
        num_free_blocks=75,
        num_used_host_blocks=10,
        num_prefill_tokens=12,
        num_decode_tokens=4,
        num_draft_tokens=16,
        num_accepted_tokens=9,
        num_moved_blocks=3,
    )
    metrics.observe(after, num_sampled=6)
    assert value("num_preemptions_total", kind="swap") == 2
    assert value("num_preemptions_total", kind="recompute") == 3
    assert value("num_requests_swapped") == 2
    assert value("kv_cache_usage_perc") == 0.25
    assert value("cpu_cache_usage_perc") == 0.25
    assert value("spec_decode_num_draft_tokens_total") == 6
    assert value("spec_decode_num_accepted_tokens_total") == 5
    assert value("generation_tokens_total") == 6
    assert value("kv_moved_blocks_total") == 3
    assert value("engine_step_token_budget") == 64
    assert value("engine_step_budget_usage_perc") == 0.25


async def test_traffic_is_told_once_however_often_it_is_asked_for() -> None:
    traffic = CollectiveCounters()
    metrics = CollectiveMetrics("metered", traffic, loop=asyncio.get_running_loop())
    mlp = {"axis": "tensor", "operation": "all_reduce", "site": "mlp"}
    for _ in range(3):
        traffic.add(CollectiveKey("tensor", "all_reduce", "mlp"), num_bytes=100, seconds=0.25)
        traffic.add(CollectiveKey("tensor", "gather", "logits"), num_bytes=7, seconds=0.25)
        metrics.update()
    metrics.stop()
    assert value("collective_bytes_total", **mlp) == 300
    assert value("collective_calls_total", **mlp) == 3
    assert value("collective_seconds_total", axis="tensor") == 1.5


def test_a_loaded_model_tells_what_its_cache_is_like() -> None:
    order = LoadOrder(
        plan_id="plan",
        model="metered",
        directory="",
        dtype="bfloat16",
        num_blocks=500,
        block_size=16,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        max_model_len=128,
        enable_prefix_cache=True,
        num_host_blocks=40,
    )
    labels = {
        "block_size": "16",
        "cache_dtype": "bfloat16",
        "enable_prefix_caching": "True",
        "num_gpu_blocks": "500",
        "num_cpu_blocks": "40",
    }
    info = CacheInfo(order)
    assert value("cache_config_info", **labels) == 1
    info.remove()
    assert value("cache_config_info", **labels) is None


def test_a_loaded_model_tells_what_computes_it() -> None:
    info = EngineInfo("metered", kind=EngineKind.VLLM, version="0.32.0")
    assert value("engine_info", engine="vllm", version="0.32.0") == 1
    info.remove()
    assert value("engine_info", engine="vllm", version="0.32.0") is None
