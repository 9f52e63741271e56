"""Samples and beams that share a prompt: what is computed once, who shares which block, who gives way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from headway.core.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError
from headway.core.request import BeamSearch, FinishReason, GenerationRequest

if TYPE_CHECKING:
    from tests.engine.conftest import Bench

MakeBench = Callable[..., "Bench"]
MakeRequest = Callable[..., GenerationRequest]
MakeGroup = Callable[..., list[GenerationRequest]]


def num_prefill_tokens(bench: Bench) -> int:
    return sum(num_tokens for batch in bench.runner.batches for _, num_tokens in batch if num_tokens > 1)


def test_samples_compute_their_prompt_once_and_share_its_blocks(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench(enable_prefix_cache=False)
    group = make_group("a", 4, 9)
    bench.engine.submit_group(group)
    bench.step()
    assert bench.runner.batches == [[("a-0", 9)]]
    assert bench.first_outputs == ["a-0", "a-1", "a-2", "a-3"]
    assert (bench.engine.block_stats().num_used, bench.engine.block_stats().num_table_entries) == (3, 12)
    bench.step()
    assert bench.runner.batches[1] == [(f"a-{number}", 1) for number in range(4)]
    stats = bench.engine.block_stats()
    assert (stats.num_used, stats.num_shared) == (2 + 4, 2)
    assert bench.runner.num_copied == 3  # the last writer needs no copy of the partly filled block
    bench.run()
    for request in group:
        bench.check_output(request)
    assert len({tuple(bench.tokens[request.request_id]) for request in group}) == 4


def test_a_prompt_of_whole_blocks_is_shared_without_copies(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench()
    bench.run_groups(make_group("a", 3, 8, max_tokens=4))
    assert bench.runner.num_copied == 0
    assert bench.engine.stats().num_prefix_queries == 8


def test_samples_may_end_with_their_first_token(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench()
    group = make_group("a", 3, 9, max_tokens=1)
    bench.run_groups(group)
    for request in group:
        bench.check_output(request)
    assert len(bench.runner.batches) == 1


def test_every_sample_has_the_prompts_log_probabilities(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench(max_num_prefill_tokens=4)
    group = make_group("a", 3, 9, num_prompt_logprobs=0)
    bench.engine.submit_group(group)
    for _ in range(2):
        assert bench.engine.step() == []
    for output in bench.engine.step():
        assert output.prompt_logprobs == bench.model.prompt_logprobs(group[0].prompt_token_ids)


def test_a_group_is_admitted_whole_and_in_order(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench(max_num_seqs=4)
    groups = [make_group("a", 2, 5), make_group("b", 3, 5), make_group("c", 1, 5)]
    for group in groups:
        bench.engine.submit_group(group)
    bench.step()
    assert bench.engine.stats().num_running == 2  # "b" finds two places, and "c" does not overtake it
    bench.run()
    assert bench.first_outputs == ["a-0", "a-1", "b-0", "b-1", "b-2", "c-0"]


def test_samples_that_end_make_place_for_others(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench(max_num_seqs=4)
    bench.engine.submit_group(make_group("a", 4, 5))
    bench.engine.submit_group(make_group("b", 2, 5))
    bench.step()
    bench.engine.cancel("a-1")
    bench.engine.cancel("a-2")
    bench.step()
    assert bench.first_outputs[4:] == ["b-0", "b-1"]


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_group_gives_way_and_comes_back_whole(make_bench: MakeBench, make_group: MakeGroup, preemption: str) -> None:
    bench = make_bench(num_blocks=12, num_host_blocks=12, preemption=preemption, enable_prefix_cache=False)
    groups = [make_group("a", 2, 8, max_tokens=14), make_group("b", 3, 7, max_tokens=9), make_group("c", 1, 3)]
    for group in groups:
        bench.engine.submit_group(group)
    while bench.engine.stats().num_preemptions < 2:  # "c" first, then "b"
        bench.step()
    stats = bench.engine.stats()
    assert (stats.num_running, stats.num_waiting) == (2, 4)
    assert (stats.num_swaps, stats.num_swapped) == ((2, 4) if preemption == "swap" else (0, 0))
    assert (bench.engine.block_stats().num_host_used > 0) == (preemption == "swap")
    names = [{name for name, _ in batch} for batch in bench.runner.batches]
    num_before = len(names)
    bench.run()
    names = [{name for name, _ in batch} for batch in bench.runner.batches[num_before:]]
    came_back = next(index for index, batch in enumerate(names) if any(name.startswith("b") for name in batch))
    assert not any("c-0" in batch for batch in names[:came_back])
    for group in groups:
        for request in group:
            bench.check_output(request)
    prompts = sum(len(group[0].prompt_token_ids) for group in groups)
    assert (num_prefill_tokens(bench) == prompts) == (preemption == "swap")


def test_a_group_that_is_recomputed_shares_its_prompt_again(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench(num_blocks=12, preemption="recompute", enable_prefix_cache=False)
    bench.engine.submit_group(make_group("a", 1, 15, max_tokens=14))
    bench.engine.submit_group(make_group("b", 3, 9, max_tokens=14))
    while bench.engine.stats().num_preemptions == 0:
        bench.step()
    num_before = len(bench.runner.batches)
    while not any(("b-0", 9) in batch for batch in bench.runner.batches[num_before:]):
        bench.step()
    assert bench.engine.block_stats().num_used == 3
    assert bench.engine.describe("b-2").num_common_tokens is None
    bench.run()


def test_where_the_host_has_no_room_a_group_is_recomputed(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench(num_blocks=6, num_host_blocks=1, preemption="swap", enable_prefix_cache=False)
    groups = [make_group("a", 1, 7), make_group("b", 1, 7)]
    bench.run_groups(*groups)
    stats = bench.engine.stats()
    assert stats.num_preemptions > 0
    assert stats.num_swaps == 0
    for group in groups:
        bench.check_output(group[0])


def test_samples_that_outgrow_the_pool_end_one_after_the_other(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench(num_blocks=8)
    group = make_group("a", 4, 6, max_tokens=26)  # two blocks of it would do for each, but all need 29
    bench.run_groups(group)
    for request in group:
        bench.check_output(request)
    assert list(bench.reasons) == ["a-0", "a-1", "a-2", "a-3"]


@pytest.mark.parametrize("num_steps", [0, 1, 2])
def test_when_the_leader_is_cancelled_another_goes_on_with_its_prefill(
    make_bench: MakeBench, make_group: MakeGroup, num_steps: int
) -> None:
    bench = make_bench(max_num_prefill_tokens=4, enable_prefix_cache=False)
    group = make_group("a", 3, 11, num_prompt_logprobs=0)
    bench.engine.submit_group(group)
    for _ in range(num_steps):
        bench.step()
    assert bench.engine.cancel("a-0")
    bench.engine.check_integrity()
    bench.run()
    assert "a-0" not in bench.tokens
    for request in group[1:]:
        bench.check_output(request)
    assert num_prefill_tokens(bench) == 11


def test_when_a_swapped_leader_is_cancelled_the_others_start_over(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench(num_blocks=6, num_host_blocks=6, preemption="swap", max_num_prefill_tokens=4)
    first, group = make_group("a", 1, 7, max_tokens=12), make_group("b", 2, 19)
    bench.engine.submit_group(first)
    bench.engine.submit_group(group)
    while bench.engine.stats().num_swapped == 0:
        bench.step()
    assert "b-0" not in bench.tokens  # in the middle of its prefill
    assert bench.engine.cancel("b-0")
    assert bench.engine.stats().num_swapped == 0
    bench.run()
    bench.check_output(first[0])
    bench.check_output(group[1])


def test_followers_can_be_cancelled_before_the_fork(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench(max_num_prefill_tokens=4)
    group = make_group("a", 3, 11)
    bench.engine.submit_group(group)
    bench.step()
    assert bench.engine.cancel("a-1")
    assert bench.engine.cancel("a-2")
    bench.run()
    bench.check_output(group[0])
    assert bench.tokens.keys() == {"a-0"}


def test_resumed_samples_share_what_they_have_in_common(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench(enable_prefix_cache=False)
    whole = make_group("whole", 3, 10)
    bench.run_groups(whole)
    bench.runner.batches.clear()
    resumed = [
        GenerationRequest(
            request_id=f"resumed-{number}",
            model="oracle",
            prompt_token_ids=request.prompt_token_ids,
            sampling=request.sampling,
            output_token_ids=tuple(bench.tokens[request.request_id][:num_given]),
        )
        for number, (request, num_given) in enumerate(zip(whole, [3, 1, 12], strict=True))
    ]
    bench.run_groups(resumed)
    for request in resumed[:2]:
        bench.check_output(request)
    assert bench.tokens["resumed-2"] == []  # it was complete
    assert bench.runner.batches[:2] == [[("resumed-0", 10)], [("resumed-0", 3), ("resumed-1", 1)]]


def test_a_group_that_is_too_large_is_refused_by_its_size(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench(max_num_seqs=4)
    with pytest.raises(InvalidArgumentError, match=r"5 sequences.* 4 can run"):
        bench.engine.submit_group(make_group("a", 5, 3))
    with pytest.raises(InvalidArgumentError, match=r"6 sequences.* 4 can run"):
        bench.engine.submit_group(make_group("a", 1, 3, beam=BeamSearch(width=6)))
    assert not bench.engine.has_work


def test_requests_that_do_not_belong_together_are_refused_whole(
    make_bench: MakeBench, make_request: MakeRequest
) -> None:
    bench = make_bench()
    with pytest.raises(InvalidArgumentError, match="differ"):
        bench.engine.submit_group([make_request("a", (1, 2)), make_request("b", (1, 3))])
    with pytest.raises(InvalidArgumentError, match="differ"):
        bench.engine.submit_group([make_request("a", (1, 2)), make_request("b", (1, 2), top_k=3)])
    with pytest.raises(AlreadyExistsError):
        bench.engine.submit_group([make_request("a", (1, 2)), make_request("a", (1, 2))])
    assert not bench.engine.has_work


@pytest.mark.parametrize("num_blocks", [14, 64])
def test_beam_search_beside_samples_equals_plain_beam_search(
    make_bench: MakeBench, make_group: MakeGroup, num_blocks: int
) -> None:
    """Also where it gives way in its middle."""
    bench = make_bench(num_blocks=num_blocks, eos_token_ids=(7, 8))
    groups = [
        make_group("a", 2, 9, max_tokens=16),
        make_group("b", 1, 6, max_tokens=14, beam=BeamSearch(width=3, num_hypotheses=2)),
        make_group("c", 3, 9),
    ]
    bench.run_groups(*groups)
    for group in groups:
        for request in group:
            bench.check_output(request)
    assert (bench.engine.stats().num_preemptions > 0) == (num_blocks == 14)
    assert bench.reasons["b-0"] is bench.hypotheses["b-0"][0].finish_reason


def test_beams_share_the_blocks_of_what_they_have_in_common(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench()
    bench.engine.submit_group(make_group("a", 1, 17, max_tokens=30, beam=BeamSearch(width=4)))
    for _ in range(12):
        bench.step()
    stats = bench.engine.block_stats()
    assert stats.num_shared >= 4
    assert stats.num_table_entries >= 4 * 7 > 2 * stats.num_used
    tables = bench.engine.describe("a-0").tables
    assert [table.label for table in tables] == [f"a-0/beam-{rank}" for rank in range(4)]
    assert tables[0].entries[0].shared_with == ("a-0/beam-1", "a-0/beam-2", "a-0/beam-3")


def test_a_beam_search_can_be_cancelled(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench()
    bench.engine.submit_group(make_group("a", 1, 9, beam=BeamSearch(width=4)))
    for _ in range(4):
        bench.step()
    assert bench.engine.cancel("a-0")
    assert not bench.engine.has_work
    assert bench.engine.block_stats().num_used == 0


def test_a_beam_search_that_could_outgrow_the_pool_is_refused(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench(num_blocks=10)
    beam = BeamSearch(width=4)
    with pytest.raises(InvalidArgumentError, match=r"13 KV blocks.* 10"):
        bench.engine.submit_group(make_group("a", 1, 6, beam=beam, max_tokens=9))
    group = make_group("b", 1, 6, beam=beam, max_tokens=7)  # one block of the prompt, and two for each beam
    bench.run_groups(group)
    bench.check_output(group[0])


@pytest.mark.parametrize(("num_prompt_tokens", "reason"), [(19, FinishReason.LENGTH), (20, FinishReason.ERROR)])
def test_prefixes_that_are_pinned_later_end_a_request_early(
    make_bench: MakeBench, make_request: MakeRequest, num_prompt_tokens: int, reason: FinishReason
) -> None:
    """At the length that is left to it, or, where it has reached that already, with an error."""
    bench = make_bench(num_blocks=8)
    prefix = tuple(range(13))
    bench.run(make_request("warm", prefix, max_tokens=1))  # three blocks of it are published
    bench.engine.submit(make_request("long", num_prompt_tokens, max_tokens=9))
    bench.step()
    bench.engine.pin("system", prefix)
    bench.run()
    assert bench.reasons["long"] is reason
    assert bench.engine.block_stats().num_pinned == 3


def test_a_description_names_blocks_and_sharers(make_bench: MakeBench, make_group: MakeGroup) -> None:
    bench = make_bench()
    bench.engine.submit_group(make_group("a", 2, 9))
    bench.step()
    bench.step()
    found = bench.engine.describe("a-1")
    assert [table.label for table in found.tables] == ["a-0", "a-1"]
    first, second = (table.entries for table in found.tables)
    assert [entry.num_tokens for entry in second] == [4, 4, 2]
    assert [entry.shared_with for entry in second] == [("a-0",), ("a-0",), ()]
    assert [entry.block for entry in first[:2]] == [entry.block for entry in second[:2]]
    assert first[2].block != second[2].block
    assert not any(entry.is_on_host for entry in (*first, *second))
    with pytest.raises(NotFoundError):
        bench.engine.describe("b")
