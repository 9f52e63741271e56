"""Tenants at one engine: who floods it waits for itself only, and nobody loses a token."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from headway.core.errors import InvalidArgumentError
from headway.core.request import GenerationRequest

if TYPE_CHECKING:
    from tests.engine.conftest import Bench

MakeBench = Callable[..., "Bench"]
MakeRequest = Callable[..., GenerationRequest]
MakeGroup = Callable[..., list[GenerationRequest]]

IN_FLIGHT: list[dict[str, Any]] = [{}, {"runs_ahead": True}, {"num_micro_batches": 2}]


def steps_until_done(bench: Bench, request_id: str) -> int:
    num_steps = 0
    while request_id not in bench.reasons:
        bench.step()
        num_steps += 1
    return num_steps


@pytest.mark.parametrize("in_flight", IN_FLIGHT, ids=["plain", "ahead", "pipeline"])
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_flood_of_one_tenant_costs_another_a_few_steps(
    make_bench: MakeBench,
    make_group: MakeGroup,
    make_request: MakeRequest,
    in_flight: dict[str, Any],
    preemption: str,
) -> None:
    """Issue 30, row 10: the other one's four tokens came after all of the flood."""
    bench = make_bench(num_blocks=400, num_host_blocks=400, max_num_seqs=8, preemption=preemption, **in_flight)
    flood = [make_group(f"a{i}", 4, 6, max_tokens=60, tenant="a") for i in range(10)]
    for group in flood:
        bench.engine.submit_group(group)
    for _ in range(5):
        bench.step()
    others = [make_request(f"b{i}", 6, max_tokens=4, tenant="b") for i in range(3)]
    for other in others:
        bench.engine.submit(other)
        assert steps_until_done(bench, other.request_id) <= 12
    assert len(bench.reasons) == 3
    bench.run()
    for request in [request for group in [*flood, others] for request in group]:
        bench.check_output(request)


def test_only_as_many_samples_give_way_as_are_needed(
    make_bench: MakeBench, make_group: MakeGroup, make_request: MakeRequest
) -> None:
    bench = make_bench(num_blocks=400, max_num_seqs=8)
    bench.engine.submit_group(make_group("a", 8, 6, max_tokens=60, tenant="a"))
    for _ in range(5):
        bench.step()
    bench.engine.submit(make_request("b", 6, max_tokens=4, tenant="b"))
    bench.step()
    assert sorted(len(group.sequences) for group in bench.running) == [1, 7]
    bench.run()


def test_memory_is_shared_too(make_bench: MakeBench, make_request: MakeRequest) -> None:
    """A tenant's contexts fill the memory; the other one's request has its share of it at once."""
    bench = make_bench(num_blocks=30, max_num_seqs=8, enable_prefix_cache=False)
    flood = [make_request(f"a{i}", 30, max_tokens=60, tenant="a") for i in range(5)]
    for request in flood:
        bench.engine.submit(request)
    for _ in range(10):
        bench.step()
    other = make_request("b", 30, max_tokens=4, tenant="b")
    bench.engine.submit(other)
    assert steps_until_done(bench, "b") <= 8
    bench.run()
    for request in [*flood, other]:
        bench.check_output(request)


def test_who_has_its_share_takes_nothing_from_others(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench(num_blocks=400, max_num_seqs=8)
    for name, tenant in (("a", "a"), ("b", "b"), ("c", "b")):
        bench.engine.submit_group(make_group(name, 4, 6, max_tokens=20, tenant=tenant))
    bench.run()
    assert bench.engine.stats().num_preemptions == 0


@pytest.mark.parametrize(("weight", "ratio"), [(1.0, 1.0), (3.0, 3.0)])
def test_tokens_go_by_weight_where_both_always_have_requests(
    make_bench: MakeBench, make_request: MakeRequest, weight: float, ratio: float
) -> None:
    """Whatever the lengths of the requests: one tenant's are five times as long."""
    bench = make_bench(num_blocks=400, max_num_seqs=4)
    for i in range(250):
        bench.engine.submit(make_request(f"a{i}", 4, max_tokens=5, tenant="a"))
        bench.engine.submit(make_request(f"b{i}", 20, max_tokens=25, tenant="b", tenant_weight=weight))
    for _ in range(300):
        bench.step()
    computed = {"a": 0, "b": 0}
    for batch in bench.runner.batches:
        for request_id, num_tokens in batch:
            computed[request_id[0]] += num_tokens
    assert computed["b"] / computed["a"] == pytest.approx(ratio, rel=0.1)


def test_a_weight_that_is_none_is_refused(make_bench: MakeBench, make_request: MakeRequest) -> None:
    with pytest.raises(InvalidArgumentError, match="tenant_weight"):
        make_bench().engine.submit(make_request("a", 4, tenant_weight=-1.0))
