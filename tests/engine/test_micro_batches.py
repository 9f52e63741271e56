"""Several batches in flight: they are equal, they overlap, and nobody notices but the clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from headway.core.request import BeamSearch, FinishReason, GenerationRequest

if TYPE_CHECKING:
    from tests.engine.conftest import Bench

MakeBench = Callable[..., "Bench"]
MakeRequest = Callable[..., GenerationRequest]
MakeGroup = Callable[..., list[GenerationRequest]]

DEPTHS = pytest.mark.parametrize("depth", [2, 3, 4])


def names_of(batch: list[tuple[str, int]]) -> list[str]:
    return [name for name, _ in batch]


@DEPTHS
@pytest.mark.parametrize("num_sequences", [4, 5, 13])
def test_decodes_are_dealt_evenly_and_the_pipeline_is_always_full(
    make_bench: MakeBench, make_request: MakeRequest, depth: int, num_sequences: int
) -> None:
    bench = make_bench(num_micro_batches=depth, num_blocks=200)
    for number in range(num_sequences):
        bench.engine.submit(make_request(f"r{number}", 5, max_tokens=30))
    for _ in range(3 * depth):
        bench.step()
    bench.runner.batches.clear()
    bench.runner.depths.clear()
    for _ in range(4 * depth):
        bench.step()
    assert set(bench.runner.depths) == {depth}
    assert max(map(len, bench.runner.batches)) == math.ceil(num_sequences / depth)
    rounds = [bench.runner.batches[first : first + depth] for first in range(0, 4 * depth, depth)]
    for each in rounds:
        assert sorted(name for batch in each for name in names_of(batch)) == sorted(
            f"r{number}" for number in range(num_sequences)
        )


@DEPTHS
def test_waiting_requests_are_dealt_evenly_too(make_bench: MakeBench, make_request: MakeRequest, depth: int) -> None:
    bench = make_bench(num_micro_batches=depth, num_blocks=200)
    for number in range(12):
        bench.engine.submit(make_request(f"r{number}", 5))
    bench.step()
    assert [len(batch) for batch in bench.runner.batches] == [12 // depth] * depth


@DEPTHS
def test_where_few_find_room_they_are_dealt_evenly_still(
    make_bench: MakeBench, make_request: MakeRequest, depth: int
) -> None:
    """Those who wait for memory keep no place free in a batch."""
    bench = make_bench(num_micro_batches=depth, num_blocks=12, max_num_seqs=64, max_model_len=16)
    for number in range(20):
        bench.engine.submit(make_request(f"r{number}", 7, max_tokens=8))  # three blocks each at their end
    for _ in range(2 * depth):
        bench.step()
    num_running = bench.engine.stats().num_running
    bench.runner.batches.clear()
    bench.step()
    assert max(map(len, bench.runner.batches)) <= math.ceil(num_running / depth)
    bench.run()


def test_a_lone_sequence_runs_at_once(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(num_micro_batches=4)
    request = make_request("a", 9, max_tokens=5)
    bench.run(request)
    bench.check_output(request)
    assert bench.runner.batches == [[("a", 9)], *[[("a", 1)]] * 4]
    assert set(bench.runner.depths) == {1}


def test_chunks_of_a_long_prompt_follow_each_other_through_the_stages(
    make_bench: MakeBench, make_request: MakeRequest
) -> None:
    """And with them what was published of the first ones, and their log probabilities."""
    bench = make_bench(num_micro_batches=3, max_num_batched_tokens=18, max_num_seqs=4)
    request = make_request("a", 40, max_tokens=3, num_prompt_logprobs=0)
    bench.engine.submit(request)
    outputs = []
    while bench.engine.has_work:
        outputs += bench.engine.step()
        bench.engine.check_integrity()
    assert outputs[0].prompt_logprobs == bench.model.prompt_logprobs(request.prompt_token_ids)
    assert [token for output in outputs for token in output.token_ids] == bench.model.generate(request, bench.config)[0]
    assert bench.runner.batches == [[("a", 6)]] * 6 + [[("a", 4)], [("a", 1)], [("a", 1)]]
    assert bench.runner.depths == [3, 3, 3, 3, 3, 2, 1, 1, 1]
    assert bench.engine.stats().num_cached_blocks == 10


def test_a_prefill_goes_on_in_every_batch_beside_an_equal_part_of_the_decodes(
    make_bench: MakeBench, make_request: MakeRequest
) -> None:
    bench = make_bench(num_micro_batches=2, max_num_batched_tokens=16, max_num_seqs=8)
    for number in range(6):
        bench.engine.submit(make_request(f"r{number}", 3, max_tokens=60))
    for _ in range(8):
        bench.step()
    bench.engine.submit(make_request("long", 90))
    bench.step()
    bench.runner.batches.clear()
    for _ in range(8):
        bench.step()
    for batch in bench.runner.batches:
        assert len(batch) == 4
        assert batch[-1] == ("long", 8)


def test_nobody_is_admitted_behind_a_prefill_in_flight(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(num_micro_batches=2, max_num_batched_tokens=8, max_num_seqs=4)
    bench.engine.submit(make_request("long", 30))
    bench.engine.submit(make_request("short", 2))
    bench.run()
    last_chunk = next(index for index, batch in enumerate(bench.runner.batches) if ("long", 2) in batch)
    assert last_chunk == 7
    assert not any("short" in names_of(batch) for batch in bench.runner.batches[:last_chunk])
    assert bench.first_outputs == ["long", "short"]


@DEPTHS
def test_groups_that_cannot_be_dealt_evenly_all_have_their_turn(
    make_bench: MakeBench, make_group: MakeGroup, depth: int
) -> None:
    bench = make_bench(num_micro_batches=depth, num_blocks=200)
    groups = [make_group(name, n, 6, max_tokens=60) for name, n in (("a", 3), ("b", 3), ("c", 3), ("d", 5), ("e", 1))]
    for group in groups:
        bench.engine.submit_group(group)
    for _ in range(4 * depth):
        bench.step()
    num_before = {name: len(tokens) for name, tokens in bench.tokens.items()}
    for _ in range(4 * depth):
        bench.step()
    gained = {name: len(tokens) - num_before[name] for name, tokens in bench.tokens.items()}
    assert len(gained) == 15
    assert min(gained.values()) >= 3


@DEPTHS
@pytest.mark.parametrize(
    "limits",
    [
        {"num_blocks": 200},
        {"num_blocks": 24, "preemption": "recompute"},
        {"num_blocks": 24, "preemption": "swap", "num_host_blocks": 40},
        {"num_blocks": 24, "preemption": "swap", "num_host_blocks": 8, "enable_prefix_cache": False},
        {"num_blocks": 200, "num_draft_tokens": 4, "draft_ngram": 2},
        {"num_blocks": 30, "max_num_prefill_tokens": 5, "eos_token_ids": (7, 8)},
    ],
)
def test_outputs_are_those_of_one_batch_at_a_time(
    make_bench: MakeBench, make_group: MakeGroup, depth: int, limits: dict[str, Any]
) -> None:
    common = tuple(range(13))
    groups = [
        make_group("a", 1, (*common, 1), max_tokens=30, temperature=0.0),
        make_group("b", 3, (*common, 2, 3), max_tokens=14),
        make_group("c", 1, 6, max_tokens=14, beam=BeamSearch(width=3, num_hypotheses=2)),
        make_group("d", 1, 31, max_tokens=9, num_prompt_logprobs=0),
        make_group("e", 2, (*common, 4), max_tokens=30, temperature=0.0),
        *(make_group(f"r{number}", 1, 2 + 3 * number, max_tokens=20) for number in range(6)),
    ]
    deep = make_bench(num_micro_batches=depth, **limits)
    deep.run_groups(*groups)
    plain = make_bench(**limits)
    plain.run_groups(*groups)
    assert deep.tokens == plain.tokens
    assert deep.hypotheses == plain.hypotheses
    assert deep.reasons == plain.reasons
    for request in [request for group in groups for request in group]:
        deep.check_output(request)
    stats = deep.engine.stats()
    assert (stats.num_preemptions > 0) == (limits["num_blocks"] <= 30)
    assert (stats.num_swaps > 0) == (limits.get("preemption") == "swap")
    assert (stats.num_accepted_tokens > 0) == ("num_draft_tokens" in limits)


def test_a_cancel_frees_what_is_in_flight_at_once_and_its_result_is_dropped(
    make_bench: MakeBench, make_request: MakeRequest
) -> None:
    bench = make_bench(num_micro_batches=2)
    for name in "ab":
        bench.engine.submit(make_request(name, 9, max_tokens=30))
    for _ in range(5):
        bench.step()
    in_flight = names_of([(scheduled.sequence.request_id, 0) for scheduled in bench.runner.in_flight[0][0].sequences])
    assert len(in_flight) == 1
    for name in "ab":
        assert bench.engine.cancel(name)
    bench.engine.check_integrity()
    assert bench.engine.stats().num_used_blocks == 0
    assert bench.engine.request_ids() == []
    assert bench.engine.has_work
    assert bench.engine.step() == []
    assert not bench.engine.has_work


@pytest.mark.parametrize("num_steps", [1, 2, 3, 4, 5, 6])
def test_an_id_is_free_while_its_predecessor_is_still_in_flight(
    make_bench: MakeBench, make_request: MakeRequest, num_steps: int
) -> None:
    """In its prefill, and later."""
    bench = make_bench(num_micro_batches=3, max_num_batched_tokens=12, max_num_seqs=8)
    bench.engine.submit(make_request("a", 17))
    for _ in range(num_steps):
        bench.step()
    bench.engine.cancel("a")
    bench.tokens.clear()
    successor = make_request("a", (5, 6, 7, 8, 9), max_tokens=20)
    bench.run(successor)
    bench.check_output(successor)


@pytest.mark.parametrize("member", ["a-0", "a-1", "a-2"])
@pytest.mark.parametrize("num_steps", [1, 2, 3, 5, 7, 9])
def test_one_of_several_samples_is_cancelled_in_flight(
    make_bench: MakeBench, make_group: MakeGroup, num_steps: int, member: str
) -> None:
    """The leader in its prefill among them: the others compute the prompt anew."""
    bench = make_bench(num_micro_batches=2, max_num_batched_tokens=8, max_num_seqs=4)
    group = make_group("a", 3, 22, num_prompt_logprobs=0)
    bench.engine.submit_group(group)
    for _ in range(num_steps):
        bench.step()
    num_before = len(bench.tokens.get(member, []))
    assert bench.engine.cancel(member)
    bench.engine.check_integrity()
    bench.run()
    assert len(bench.tokens.get(member, [])) == num_before
    for request in group:
        if request.request_id != member:
            bench.check_output(request)


def test_a_sample_that_decodes_does_not_run_ahead_when_its_prefilling_sibling_is_cancelled(
    make_bench: MakeBench, make_request: MakeRequest
) -> None:
    bench = make_bench(num_micro_batches=2, max_num_batched_tokens=8, max_num_seqs=4)
    for name in ("other", "another"):
        bench.engine.submit(make_request(name, 4, max_tokens=40))
    prompt = tuple(range(7))
    short = make_request("short", prompt, seed=1, output=(1,), max_tokens=20)
    long = make_request("long", prompt, seed=2, output=tuple(range(2, 18)), max_tokens=20)
    bench.engine.submit_group([short, long])
    bench.step()
    while ("short", 1) not in bench.runner.batches[-1]:
        bench.step()
    assert names_of(bench.runner.batches[-1])[-2:] == ["short", "long"]
    assert [scheduled.samples for scheduled in bench.runner.in_flight[-1][0].sequences][-2:] == [True, False]
    bench.engine.cancel("long")
    bench.run()  # the runner checks that no token is computed before the one it follows
    bench.check_output(short)


def test_giving_up_leaves_no_block_used_and_what_is_in_flight_brings_nothing(
    make_bench: MakeBench, make_group: MakeGroup
) -> None:
    bench = make_bench(num_micro_batches=3, num_blocks=24, num_host_blocks=24, preemption="swap")
    groups = [make_group(name, n, 9, max_tokens=20) for name, n in (("a", 2), ("b", 1), ("c", 3), ("d", 1))]
    for group in groups:
        bench.engine.submit_group(group)
    while bench.engine.stats().num_swapped == 0:
        bench.step()
    bench.runner.failures.append(RuntimeError("the device is gone"))
    with pytest.raises(RuntimeError):
        bench.engine.step()
    assert bench.runner.in_flight
    bench.take(bench.engine.fail_all("the device is gone"))
    bench.engine.check_integrity()
    assert set(bench.reasons.values()) == {FinishReason.ERROR}
    assert len(bench.reasons) == 7
    stats = bench.engine.stats()
    assert (stats.num_used_blocks, stats.num_used_host_blocks) == (0, 0)
    bench.reasons.clear()
    bench.tokens.clear()
    bench.run_groups(groups[2])
    for request in groups[2]:
        bench.check_output(request)


@pytest.mark.parametrize("num_steps", [0, 1, 3])
def test_a_batch_that_failed_alone_can_be_repeated(
    make_bench: MakeBench, make_request: MakeRequest, num_steps: int
) -> None:
    """A prompt's first chunk, with none behind it, and decodes."""
    bench = make_bench(num_micro_batches=2)
    request = make_request("a", 11)
    bench.engine.submit(request)
    for _ in range(num_steps):
        bench.step()
    bench.runner.failures.append(RuntimeError("the device is gone"))
    with pytest.raises(RuntimeError):
        bench.engine.step()
    bench.engine.check_integrity()
    bench.run()
    bench.check_output(request)


def test_common_tokens_whose_last_chunk_failed_are_computed_again(
    make_bench: MakeBench, make_request: MakeRequest
) -> None:
    """The chunks before it came back while it was in flight: nothing of it was published or forked with theirs."""
    bench = make_bench(num_micro_batches=2, max_num_batched_tokens=8, max_num_seqs=4)
    group = [
        make_request(name, tuple(range(12)), seed=seed, output=(seed, 3, 4)) for seed, name in enumerate(("a", "b"))
    ]
    bench.engine.submit_group(group)
    bench.step()
    bench.step()
    assert bench.runner.batches == [[("a", 4)]] * 3
    bench.runner.failures.append(RuntimeError("the device is gone"))
    with pytest.raises(RuntimeError):
        bench.engine.step()
    bench.engine.check_integrity()
    bench.run()
    for request in group:
        bench.check_output(request)


def test_figures_belong_to_the_batch_that_was_finished(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(num_micro_batches=2)
    bench.engine.submit(make_request("a", 9))
    bench.engine.submit(make_request("b", 5))
    figures = []
    for _ in range(3):
        bench.step()
        stats = bench.engine.stats()
        figures.append((stats.num_steps, stats.num_prefill_tokens, stats.num_decode_tokens))
    assert figures == [(1, 9, 0), (2, 5, 0), (3, 0, 1)]


def test_a_duration_counts_from_when_the_batch_before_was_done(
    make_bench: MakeBench, make_request: MakeRequest
) -> None:
    """So the durations of all batches add up to the time that has gone by."""
    bench = make_bench(num_micro_batches=2)
    for name in "ab":
        bench.engine.submit(make_request(name, 5))
    durations = []
    for _ in range(6):
        bench.step()
        durations.append(bench.engine.stats().duration_s)
    assert durations == [1, 2, 2, 2, 2, 2]  # the clock ticks once per reading: two readings a step


def test_pins_hold_what_is_computed_in_flight(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(num_micro_batches=3, max_num_batched_tokens=12, max_num_seqs=4)
    prefix = tuple(range(20))
    bench.engine.submit(make_request("a", (*prefix, 1)))
    bench.step()
    bench.engine.pin("system", prefix)
    bench.run()
    (pinned,) = bench.engine.pinned_prefixes()
    assert (pinned.num_blocks, pinned.num_resident_blocks) == (5, 5)
    later = make_request("b", (*prefix, 2, 3))
    bench.run(later)
    bench.check_output(later)
