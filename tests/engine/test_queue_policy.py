"""The order of the engine's line: who is admitted next, and who gives way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from headway.core.line import QueuePolicy
from headway.core.request import GenerationRequest

if TYPE_CHECKING:
    from tests.engine.conftest import Bench

MakeBench = Callable[..., "Bench"]
MakeRequest = Callable[..., GenerationRequest]


def order(bench: Bench, requests: list[GenerationRequest]) -> str:
    bench.run(*requests)
    for request in requests:
        bench.check_output(request)
    return "".join(bench.first_outputs)


def test_the_lowest_priority_is_next_and_equals_in_the_order_of_arrival(
    make_bench: MakeBench, make_request: MakeRequest
) -> None:
    bench = make_bench(max_num_seqs=1, queue_policy=QueuePolicy.PRIORITY)
    priorities = {"a": 3, "b": 1, "c": 2, "d": 1, "e": -5}
    assert order(bench, [make_request(name, 5, priority=priorities[name]) for name in priorities]) == "ebdca"


def test_the_least_slack_is_next_whenever_it_came(make_bench: MakeBench, make_request: MakeRequest) -> None:
    """The bench's clock ticks once with each arrival."""
    bench = make_bench(max_num_seqs=1, queue_policy=QueuePolicy.LEAST_SLACK)
    slacks: dict[str, dict[str, Any]] = {"a": {}, "b": {"slack_s": 9.0}, "c": {"slack_s": 6.5}, "d": {"slack_s": 8.0}}
    assert order(bench, [make_request(name, 5, **slack) for name, slack in slacks.items()]) == "cbda"


@pytest.mark.parametrize("runs_ahead", [False, True])
def test_who_comes_later_and_is_more_urgent_goes_first_and_takes_nothing_from_who_runs(
    make_bench: MakeBench, make_request: MakeRequest, runs_ahead: bool
) -> None:
    bench = make_bench(max_num_seqs=2, queue_policy=QueuePolicy.PRIORITY, runs_ahead=runs_ahead)
    first = [make_request(name, 5, priority=10) for name in "abcd"]
    for request in first:
        bench.engine.submit(request)
    bench.step()
    urgent = make_request("z", 5, priority=-100)
    assert order(bench, [urgent]) == "abzcd"
    for request in first:
        bench.check_output(request)
    assert bench.engine.stats().num_preemptions == 0


@pytest.mark.parametrize("policy", [QueuePolicy.FCFS, QueuePolicy.PRIORITY])
def test_when_memory_runs_out_the_least_urgent_gives_way_and_comes_back_last(
    make_bench: MakeBench, make_request: MakeRequest, policy: QueuePolicy
) -> None:
    bench = make_bench(num_blocks=6, enable_prefix_cache=False, queue_policy=policy)
    priorities = {"a": 5, "b": 1, "c": 3}
    requests = [make_request(name, 7, max_tokens=9, priority=priorities[name]) for name in priorities]
    for request in requests:
        bench.engine.submit(request)
    while bench.engine.stats().num_preemptions == 0:
        bench.step()
    (victim,) = set("abc") - {name for name, _ in bench.runner.batches[-1]}
    assert victim == ("c" if policy is QueuePolicy.FCFS else "a")
    bench.run()
    for request in requests:
        bench.check_output(request)


def test_decodes_do_not_wait_for_the_prompt_of_who_is_first_in_line(
    make_bench: MakeBench, make_request: MakeRequest
) -> None:
    bench = make_bench(max_num_batched_tokens=8, max_num_seqs=4, queue_policy=QueuePolicy.PRIORITY)
    for name in "ab":
        bench.engine.submit(make_request(name, 3, priority=1))
    bench.step()
    bench.engine.submit(make_request("z", 15, priority=0))
    for _ in range(3):
        bench.step()
    assert bench.runner.batches[1:] == [
        [("a", 1), ("b", 1), ("z", 6)],
        [("a", 1), ("b", 1), ("z", 6)],
        [("a", 1), ("b", 1), ("z", 3)],
    ]
    bench.run()
