"""A batch is started before the tokens of the one before are known, and nobody notices but the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from headway.core.block_hash import block_hashes
from headway.core.errors import InvalidArgumentError
from headway.core.request import BeamSearch, FinishReason, GenerationRequest
from headway.engine.config import EngineConfig

if TYPE_CHECKING:
    from tests.engine.conftest import Bench

MakeBench = Callable[..., "Bench"]
MakeRequest = Callable[..., GenerationRequest]
MakeGroup = Callable[..., list[GenerationRequest]]

UNSAYABLE = ((99,),)  # bad words that the oracle cannot say: they only hold up


def test_every_sequence_is_in_both_batches(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(runs_ahead=True)
    for name in "abc":
        bench.engine.submit(make_request(name, 5, max_tokens=30))
    bench.step()
    bench.runner.depths.clear()
    for _ in range(20):
        bench.step()
    assert set(bench.runner.depths) == {2}
    assert bench.runner.batches[1:] == [[("a", 1), ("b", 1), ("c", 1)]] * 21
    assert bench.runner.num_future == 3 * 21


def test_nothing_is_started_behind_a_last_token(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(runs_ahead=True, max_model_len=16)
    for request in (make_request("a", 9, max_tokens=5), make_request("b", 9, max_tokens=50)):
        bench.runner.batches.clear()
        bench.run(request)
        bench.check_output(request)
        name, num_tokens = request.request_id, len(bench.tokens[request.request_id])
        assert bench.runner.batches == [[(name, 9)], *[[(name, 1)]] * (num_tokens - 1)]


def test_what_follows_a_stop_token_is_dropped(make_bench: MakeBench, make_request: MakeRequest) -> None:
    plain = make_bench()
    request = make_request("a", 9, max_tokens=40)
    plain.run(request)
    stop = plain.tokens["a"][6]
    num_tokens = plain.tokens["a"].index(stop) + 1
    bench = make_bench(runs_ahead=True)
    stopped = make_request("a", 9, max_tokens=40, stop_token_ids=(stop,))
    bench.run(stopped)
    bench.check_output(stopped)
    assert bench.reasons["a"] is FinishReason.STOP
    assert len(bench.runner.batches) == num_tokens + 1


@pytest.mark.parametrize(
    "held",
    [
        {"bad_token_ids": UNSAYABLE},
        {"frequency_penalty": 0.1},
        {"beam": BeamSearch(width=2)},
    ],
    ids=["bad words", "penalty", "beams"],
)
def test_all_wait_while_one_needs_its_last_token(
    make_bench: MakeBench, make_request: MakeRequest, held: dict[str, Any]
) -> None:
    bench = make_bench(runs_ahead=True)
    requests = [make_request("free", 5, max_tokens=30), make_request("held", 7, max_tokens=10, **held)]
    for request in requests:
        bench.engine.submit(request)
    while "held" in bench.engine.request_ids():
        bench.step()
    assert set(bench.runner.depths) == {1}
    bench.runner.depths.clear()
    bench.run()
    assert bench.runner.depths == [2] * 19 + [1]
    for request in requests:
        bench.check_output(request)


def test_the_prompt_of_one_that_needs_its_last_token_holds_nobody_up(
    make_bench: MakeBench, make_request: MakeRequest
) -> None:
    bench = make_bench(runs_ahead=True, max_num_batched_tokens=8, max_num_seqs=4)
    requests = [make_request("free", 5, max_tokens=40), make_request("held", 40, bad_token_ids=UNSAYABLE)]
    bench.engine.submit(requests[0])
    bench.step()
    bench.engine.submit(requests[1])
    bench.runner.depths.clear()
    for _ in range(5):
        bench.step()
    assert set(bench.runner.depths) == {2}
    bench.run()
    for request in requests:
        bench.check_output(request)


def test_drafts_wait_for_known_tokens(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(runs_ahead=True, num_draft_tokens=3)
    request = make_request("a", 9, max_tokens=30, temperature=0.0)
    bench.run(request)
    bench.check_output(request)
    assert set(bench.runner.depths) == {1}
    assert bench.engine.stats().num_accepted_tokens > 0


@pytest.mark.parametrize("num_prompt_tokens", [3, 7, 8, 30])
def test_samples_fork_before_any_of_them_goes_on(
    make_bench: MakeBench, make_group: MakeGroup, num_prompt_tokens: int
) -> None:
    bench = make_bench(runs_ahead=True, max_num_batched_tokens=12, max_num_seqs=6)
    groups = [make_group("a", 3, num_prompt_tokens, max_tokens=20), make_group("b", 2, 5, max_tokens=20)]
    bench.run_groups(*groups)
    for request in [request for group in groups for request in group]:
        bench.check_output(request)
    assert bench.runner.num_future > 5 * 15


@pytest.mark.parametrize("held", [{}, {"bad_token_ids": UNSAYABLE, "max_tokens": 8}], ids=["free", "held"])
@pytest.mark.parametrize(
    "limits",
    [
        {"num_blocks": 200},
        {"num_blocks": 24, "preemption": "recompute"},
        {"num_blocks": 24, "preemption": "swap", "num_host_blocks": 40},
        {"num_blocks": 24, "preemption": "swap", "num_host_blocks": 8, "enable_prefix_cache": False},
        {"num_blocks": 30, "max_num_prefill_tokens": 5, "eos_token_ids": (7, 8)},
        {"num_blocks": 30, "max_num_batched_tokens": 9, "max_num_seqs": 8, "block_size": 3},
    ],
)
def test_outputs_are_those_of_one_batch_at_a_time(
    make_bench: MakeBench, make_group: MakeGroup, limits: dict[str, Any], held: dict[str, Any]
) -> None:
    common = tuple(range(13))
    groups = [
        make_group("a", 1, (*common, 1), num_logprobs=0, **{"max_tokens": 30, **held}),
        make_group("b", 3, (*common, 2, 3), max_tokens=14),
        make_group("d", 1, 31, max_tokens=9, num_prompt_logprobs=0),
        make_group("e", 2, (*common, 4), max_tokens=30, temperature=0.0),
        *(make_group(f"r{number}", 1, 2 + 3 * number, max_tokens=20, min_tokens=number) for number in range(6)),
    ]
    ahead = make_bench(runs_ahead=True, **limits)
    ahead.run_groups(*groups)
    plain = make_bench(**limits)
    plain.run_groups(*groups)
    assert ahead.tokens == plain.tokens
    assert ahead.reasons == plain.reasons
    for request in [request for group in groups for request in group]:
        ahead.check_output(request)
    stats = ahead.engine.stats()
    assert (stats.num_preemptions > 0) == (limits["num_blocks"] <= 30)
    assert (stats.num_swaps > 0) == (limits.get("preemption") == "swap")
    assert ahead.runner.num_future > 0


@pytest.mark.parametrize("num_steps", [1, 2, 3, 5, 8])
def test_a_cancel_frees_blocks_at_once_and_drops_both_results(
    make_bench: MakeBench, make_request: MakeRequest, num_steps: int
) -> None:
    """Its blocks go to others while it is in flight, and its id is free."""
    bench = make_bench(runs_ahead=True, num_blocks=8)
    bench.engine.submit(make_request("a", 12, max_tokens=16))
    for _ in range(num_steps):
        bench.step()
    assert len(bench.runner.in_flight) == 1
    assert bench.engine.cancel("a")
    bench.engine.check_integrity()
    assert bench.engine.stats().num_used_blocks == 0
    bench.tokens.clear()
    successors = [make_request("a", 13, max_tokens=16), make_request("b", 2, max_tokens=3)]
    bench.run(*successors)
    for request in successors:
        bench.check_output(request)


def test_blocks_are_published_when_their_last_token_is_back(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(runs_ahead=True)
    request = make_request("a", 10, max_tokens=20)
    bench.engine.submit(request)
    for _ in range(12):
        bench.step()
        tokens = [*request.prompt_token_ids, *bench.tokens["a"]]
        assert bench.engine.kv_transfer.chains(["a"]) == [block_hashes(tokens[:-1], block_size=4)]
        assert bench.engine.describe("a").tables[0].num_tokens == len(tokens)


def test_a_block_whose_last_token_never_came_back_is_not_published(
    make_bench: MakeBench, make_request: MakeRequest
) -> None:
    bench = make_bench(runs_ahead=True)
    request = make_request("a", 6, max_tokens=30)
    bench.engine.submit(request)
    known = list(request.prompt_token_ids)
    while len(known) < 12:
        bench.step()
        known = [*request.prompt_token_ids, *bench.tokens["a"]]
    bench.runner.failures.append(RuntimeError("the device is gone"))
    with pytest.raises(RuntimeError):
        bench.engine.step()  # it was to bring the keys and values of the twelfth token
    bench.take(bench.engine.fail_all("the device is gone"))
    later = make_request("b", (*known, 1, 2))
    bench.run(later)
    bench.check_output(later)


@pytest.mark.parametrize("num_prompt_tokens", [9, 30])
def test_a_prompt_in_flight_is_not_computed_yet(
    make_bench: MakeBench, make_request: MakeRequest, num_prompt_tokens: int
) -> None:
    bench = make_bench(runs_ahead=True, max_num_batched_tokens=10, max_num_seqs=4)
    bench.engine.submit(make_request("other", 4, max_tokens=60))
    for _ in range(3):
        bench.step()
    bench.engine.submit(make_request("a", num_prompt_tokens, max_tokens=20))
    while not (progress := bench.engine.kv_transfer.progress(["a"])).is_decoding:
        assert not bench.tokens.get("a")
        bench.step()
    assert bench.tokens["a"]
    assert len(progress.chains[0]) == num_prompt_tokens // 4


def test_settling_brings_each_batch_in_a_step_of_its_own(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(runs_ahead=True)
    requests = [make_request("a", 5, max_tokens=8), make_request("b", 6, max_tokens=12)]
    for request in requests:
        bench.engine.submit(request)
    while bench.engine.has_work:
        bench.step()
        bench.engine.settle()
        assert not bench.runner.in_flight
        bench.engine.check_integrity()
    for request in requests:
        bench.check_output(request)


def test_settling_two_batches_tells_of_them_one_by_one(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(runs_ahead=True)
    request = make_request("a", 5, max_tokens=8)
    bench.engine.submit(request)
    bench.step()
    bench.engine._start_batches(0.0)
    assert len(bench.runner.in_flight) == 2
    bench.engine.settle()
    assert [len(bench.engine.step()[0].token_ids) for _ in range(2)] == [1, 1]


def test_a_failed_batch_takes_the_one_behind_it_along(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench(runs_ahead=True, num_blocks=24, num_host_blocks=24, preemption="swap")
    groups = [make_group(name, n, 9, max_tokens=20) for name, n in (("a", 2), ("b", 1), ("c", 3), ("d", 1))]
    for group in groups:
        bench.engine.submit_group(group)
    while bench.engine.stats().num_swapped == 0:
        bench.step()
    bench.runner.failures.append(RuntimeError("the device is gone"))
    with pytest.raises(RuntimeError):
        bench.engine.step()
    bench.take(bench.engine.fail_all("the device is gone"))
    bench.engine.check_integrity()
    assert set(bench.reasons.values()) == {FinishReason.ERROR}
    stats = bench.engine.stats()
    assert (stats.num_used_blocks, stats.num_used_host_blocks) == (0, 0)
    bench.reasons.clear()
    bench.tokens.clear()
    bench.run_groups(groups[2])
    for request in groups[2]:
        bench.check_output(request)


def test_durations_add_up_to_the_time_that_has_gone_by(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(runs_ahead=True)
    bench.engine.submit(make_request("a", 5))
    durations = []
    for _ in range(6):
        bench.step()
        durations.append(bench.engine.stats().duration_s)
    assert durations == [1, 2, 2, 2, 2, 2]  # the clock ticks once per reading: two readings a step


def test_pipelines_have_their_own_batches_in_flight() -> None:
    with pytest.raises(InvalidArgumentError, match="micro-batch"):
        EngineConfig(num_blocks=8, max_model_len=16, num_micro_batches=2, runs_ahead=True)
