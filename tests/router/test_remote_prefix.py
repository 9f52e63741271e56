"""Prefixes are fetched where that is clearly cheaper than computing them, and from nowhere else."""

from dataclasses import replace

import pytest

from headway.router.lease import Lease
from tests.router.harness import make_plan
from tests.router.stage import Stage

BLOCK_BYTES = 64 * 1024
BUSY = {"num_running": 20, "num_context_tokens": 5_000, "num_pending_prefill_tokens": 8_000}


def stage(*, block_bytes: int = BLOCK_BYTES) -> Stage:
    """Two workers; a prompt token takes 1 ms to compute."""
    found = Stage(2)
    plan = make_plan(*found.worker_ids)
    assignments = tuple(
        replace(assignment, kv_cache_bytes=block_bytes * assignment.num_blocks) for assignment in plan.assignments
    )
    found.dispatcher.fleet.apply(replace(plan, assignments=assignments))
    return found


def place(found: Stage, *, cached_blocks: int = 20, own_blocks: int = 0, **changes: object) -> Lease:
    """worker-0 is too busy and holds most of the prompt; the request goes to worker-1."""
    found.report("worker-0", **BUSY)
    lease = found.lease(cached_blocks={"worker-0": cached_blocks, "worker-1": own_blocks}, **changes)
    assert lease.worker_id == "worker-1"
    return lease


def test_a_prefix_comes_from_the_worker_that_holds_it() -> None:
    alone, lease = place(stage(), cached_blocks=0), place(stage())
    assert lease.source is not None
    assert (lease.source.worker_id, lease.source.endpoint) == ("worker-0", "host:worker-0")
    assert (lease.source.num_blocks, lease.num_prefill_tokens, lease.num_cached_tokens) == (20, 80, 0)
    assert 0.2 < lease.source.timeout_s < 0.5, "as long as computing takes"
    assert lease.ttft_s is not None
    assert alone.ttft_s is not None
    assert lease.ttft_s < 0.7 * alone.ttft_s
    assert "320 more fetched from worker-0 in" in lease.reason


def test_only_what_the_worker_lacks_counts() -> None:
    lease = place(stage(), own_blocks=10)
    assert lease.source is not None
    assert (lease.num_cached_tokens, lease.num_prefill_tokens, lease.source.num_blocks) == (160, 80, 20)
    assert place(stage(), own_blocks=20).source is None
    assert place(stage(), own_blocks=22).source is None


def test_little_is_rather_computed() -> None:
    assert place(stage(), cached_blocks=2).source is None


def test_large_blocks_are_rather_computed() -> None:
    assert place(stage(block_bytes=16 << 20)).source is None


def test_a_slow_way_between_workers_is_learnt_from_their_reports() -> None:
    found = stage()
    found.report("worker-1", fetch_bytes_per_s=2e6)
    assert place(found).source is None
    found.report("worker-1", fetch_bytes_per_s=1e9)
    assert place(found).source is not None


@pytest.mark.parametrize("change", [{"enable_prefix_cache": False}, {"block_size": 32}])
def test_blocks_that_cannot_be_exchanged_are_computed(change: dict[str, object]) -> None:
    found = stage()
    plan = make_plan(*found.worker_ids)
    usual = [replace(a, kv_cache_bytes=BLOCK_BYTES * a.num_blocks) for a in plan.assignments]
    other = replace(usual[0], **change)  # type: ignore[arg-type]
    if "block_size" in change:
        found.report("worker-0", **BUSY | {"block_size": 32})
        found.dispatcher.fleet.apply(replace(plan, assignments=(other, usual[1])))
        assert found.lease(cached_blocks={"worker-0": 10}).source is None
    else:
        found.dispatcher.fleet.apply(replace(plan, assignments=(other, usual[1])))
        assert place(found).source is None


def test_without_a_latency_model_nothing_is_fetched() -> None:
    found = Stage(0)
    for worker_id in ("worker-0", "worker-1"):
        found.report(worker_id)
    assert place(found).source is None


def test_a_worker_that_goes_away_is_no_source() -> None:
    found = stage()
    found.report("worker-0", state="draining")
    assert found.lease(cached_blocks={"worker-0": 20}).source is None
