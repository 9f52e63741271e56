from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from headway.core.errors import AlreadyExistsError, InvalidArgumentError
from headway.core.request import FinishReason, GenerationRequest, SequenceOutput, TokenLogprobs

if TYPE_CHECKING:
    from tests.engine.conftest import Bench

MakeBench = Callable[..., "Bench"]
MakeRequest = Callable[..., GenerationRequest]


@pytest.fixture
def mixed_requests(make_request: MakeRequest) -> list[GenerationRequest]:
    """Twenty prompts of mixed lengths, some of which share prefixes."""
    common = tuple(range(13))
    return [
        make_request(
            f"r{number}",
            (*common, *range(number)) if number % 3 == 0 else 1 + 5 * number % 37,
            max_tokens=5 + number,
        )
        for number in range(20)
    ]


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("chunk", [1, 3, 7, 13, 200])
@pytest.mark.parametrize("num_blocks", [16, 23, 200])
def test_output_equals_plain_generation(
    make_bench: MakeBench,
    mixed_requests: list[GenerationRequest],
    num_blocks: int,
    chunk: int,
    prefix_cache: bool,
) -> None:
    """Under preemption (few blocks), at odd chunk sizes, with and without shared prefixes."""
    bench = make_bench(
        num_blocks=num_blocks,
        max_num_prefill_tokens=chunk,
        enable_prefix_cache=prefix_cache,
        max_num_seqs=20,
        eos_token_ids=(3,),
    )
    bench.run(*mixed_requests)
    for request in mixed_requests:
        bench.check_output(request)
    stats = bench.engine.stats()
    assert stats.num_preemptions > 0 or num_blocks > 16
    num_prompt_tokens = sum(len(request.prompt_token_ids) for request in mixed_requests)
    assert stats.num_prefix_queries == (num_prompt_tokens if prefix_cache else 0)
    assert stats.num_prefix_hits <= stats.num_prefix_queries
    assert bench.first_outputs == [request.request_id for request in mixed_requests]


def test_a_step_reports_each_new_token_with_what_was_asked_for(
    make_bench: MakeBench, make_request: MakeRequest
) -> None:
    bench = make_bench()
    request = make_request("a", 6, max_tokens=2, num_logprobs=0)
    bench.engine.submit(request)
    first, second = bench.engine.step(), bench.engine.step()
    tokens, _ = bench.model.generate(request, bench.config)
    entries = bench.model.entries([*request.prompt_token_ids, *tokens])
    assert first == [SequenceOutput("a", (tokens[0],), logprobs=(bench.model.logprobs(tokens[0], entries[5]),))]
    assert second == [
        SequenceOutput(
            "a",
            (tokens[1],),
            logprobs=(bench.model.logprobs(tokens[1], entries[6]),),
            finish_reason=FinishReason.LENGTH,
        )
    ]
    assert not bench.engine.has_work


def test_a_stop_token_is_reported_with_the_last_output(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench()
    probe = make_request("probe", 6, max_tokens=5)
    stop = bench.model.generate(probe, bench.config)[0][3]
    bench.engine.submit(make_request("a", probe.prompt_token_ids, stop_token_ids=(stop,)))
    outputs = [output for _ in range(4) for output in bench.engine.step()]
    assert outputs[-1] == SequenceOutput("a", (stop,), finish_reason=FinishReason.STOP, stop_token_id=stop)


@pytest.mark.parametrize("num_blocks", [16, 200])
def test_prompt_logprobs_come_once_and_whole(make_bench: MakeBench, make_request: MakeRequest, num_blocks: int) -> None:
    """Also from a prompt in the cache, in chunks, and from a sequence that is preempted before and after."""
    bench = make_bench(num_blocks=num_blocks, max_num_prefill_tokens=5, max_num_seqs=8)
    prompt = tuple(range(17))
    bench.run(make_request("warm", prompt))
    requests = [make_request(f"r{n}", (*prompt, *range(n)), max_tokens=20, num_prompt_logprobs=0) for n in range(6)]
    for request in requests:
        bench.engine.submit(request)
    received: dict[str, list[tuple[TokenLogprobs, ...]]] = {}
    while bench.engine.has_work:
        for output in bench.engine.step():
            received.setdefault(output.request_id, []).append(output.prompt_logprobs)
    for request in requests:
        first, *later = received[request.request_id]
        assert first == bench.model.prompt_logprobs(request.prompt_token_ids)
        assert not any(later)
    assert (bench.engine.stats().num_preemptions > 0) == (num_blocks == 16)


def test_the_first_output_tells_how_much_of_the_prompt_was_cached(
    make_bench: MakeBench, make_request: MakeRequest
) -> None:
    bench = make_bench()
    first = make_request("a", 10)
    bench.run(first)
    bench.engine.submit(make_request("b", first.prompt_token_ids))
    assert [output.num_cached_tokens for output in bench.engine.step()] == [8]
    assert [output.num_cached_tokens for output in bench.engine.step()] == [0]


def test_only_prompt_tokens_count_as_cached_in_a_resumed_stream(
    make_bench: MakeBench, make_request: MakeRequest
) -> None:
    bench = make_bench()
    first = make_request("a", 5)
    bench.run(first)
    given = tuple(bench.tokens["a"][:6])
    bench.engine.submit(make_request("b", first.prompt_token_ids, output=given))
    assert [output.num_cached_tokens for output in bench.engine.step()] == [5]


@pytest.mark.parametrize("num_given", [1, 5, 11])
def test_a_resumed_stream_goes_on_where_it_was(
    make_bench: MakeBench, make_request: MakeRequest, num_given: int
) -> None:
    bench = make_bench()
    whole = make_request("whole", 9, max_tokens=12)
    bench.run(whole)
    given = tuple(bench.tokens["whole"][:num_given])
    resumed = make_request("resumed", whole.prompt_token_ids, output=given, max_tokens=12)
    bench.run(resumed)
    assert bench.tokens["resumed"] == bench.tokens["whole"][num_given:]
    assert bench.reasons["resumed"] is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("output", "reason", "stop_token_id"),
    [((5, 6, 7), FinishReason.LENGTH, None), ((5, 2), FinishReason.STOP, 2)],
)
def test_a_stream_resumed_after_its_last_token_only_ends(
    make_bench: MakeBench,
    make_request: MakeRequest,
    output: tuple[int, ...],
    reason: FinishReason,
    stop_token_id: int | None,
) -> None:
    bench = make_bench(eos_token_ids=(2,))
    bench.engine.submit(make_request("a", 4, output=output, max_tokens=3))
    assert bench.engine.has_work
    assert bench.engine.step() == [SequenceOutput("a", finish_reason=reason, stop_token_id=stop_token_id)]
    assert not bench.engine.has_work
    assert bench.runner.batches == []


def test_a_sequence_ends_at_the_context_length(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(max_model_len=15)
    bench.run(make_request("a", 10, max_tokens=100))
    assert len(bench.tokens["a"]) == 5
    assert bench.reasons["a"] is FinishReason.LENGTH


def test_a_sequence_that_fills_the_pool_alone_ends_by_length(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(num_blocks=5)
    requests = [make_request(name, 10, max_tokens=100) for name in "ab"]
    bench.run(*requests)
    for request in requests:
        bench.check_output(request)
        assert len(bench.tokens[request.request_id]) == 5 * 4 + 1 - 10


@pytest.mark.parametrize("length", [0, 200, 300])
def test_a_prompt_that_can_never_fit_is_refused(make_bench: MakeBench, make_request: MakeRequest, length: int) -> None:
    bench = make_bench()
    with pytest.raises(InvalidArgumentError):
        bench.engine.submit(make_request("a", length))
    assert not bench.engine.has_work


def test_a_prompt_larger_than_the_pool_is_refused(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(num_blocks=4)
    with pytest.raises(InvalidArgumentError, match="17"):
        bench.engine.submit(make_request("a", 17))
    bench.run(make_request("b", 16, max_tokens=1))


def test_an_id_in_use_is_refused_and_free_again_afterwards(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench()
    bench.engine.submit(make_request("a", 4, max_tokens=2))
    with pytest.raises(AlreadyExistsError):
        bench.engine.submit(make_request("a", 5))
    bench.engine.cancel("a")
    bench.run(make_request("a", 5))


@pytest.mark.parametrize("num_steps", [0, 1, 2, 5])
def test_a_cancel_frees_blocks_at_once_and_silences_the_request(
    make_bench: MakeBench, make_request: MakeRequest, num_steps: int
) -> None:
    """Waiting (0 steps), in the middle of its prefill (1, 2) and decoding (5)."""
    bench = make_bench(max_num_prefill_tokens=4)
    keep, gone = make_request("keep", 3), make_request("gone", 11)
    bench.engine.submit(keep)
    bench.engine.submit(gone)
    for _ in range(num_steps):
        bench.step()
    num_before = len(bench.tokens.get("gone", []))
    used_before = bench.engine.stats().num_used_blocks
    assert bench.engine.cancel("gone")
    bench.engine.check_integrity()
    assert bench.engine.stats().num_used_blocks <= used_before
    bench.run()
    bench.check_output(keep)
    assert len(bench.tokens.get("gone", [])) == num_before
    assert "gone" not in bench.reasons


def test_the_last_cancel_leaves_nothing_to_do(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench()
    bench.engine.submit(make_request("a", 30))
    bench.step()
    assert bench.engine.stats().num_used_blocks == 8
    assert bench.engine.cancel("a")
    assert not bench.engine.cancel("a")
    assert not bench.engine.has_work
    assert bench.engine.stats().num_used_blocks == 0


def test_a_step_that_failed_can_be_repeated(make_bench: MakeBench, mixed_requests: list[GenerationRequest]) -> None:
    bench = make_bench(num_blocks=23, max_num_prefill_tokens=7, max_num_seqs=20)
    for request in mixed_requests:
        bench.engine.submit(request)
    for number in itertools.count():
        if not bench.engine.has_work:
            break
        if number % 3 == 0:
            bench.runner.failures.append(RuntimeError("the device is gone"))
            with pytest.raises(RuntimeError):
                bench.engine.step()
            bench.engine.check_integrity()
        bench.step()
    for request in mixed_requests:
        bench.check_output(request)


def test_giving_up_ends_every_request_with_an_error(
    make_bench: MakeBench, mixed_requests: list[GenerationRequest]
) -> None:
    bench = make_bench(max_num_prefill_tokens=7)
    for request in mixed_requests:
        bench.engine.submit(request)
    for _ in range(8):
        bench.step()
    bench.runner.failures.append(RuntimeError("the device is gone"))
    with pytest.raises(RuntimeError):
        bench.engine.step()
    outputs = bench.engine.fail_all("the device is gone")
    unfinished = {request.request_id for request in mixed_requests} - bench.reasons.keys()
    assert {output.request_id for output in outputs} == unfinished
    assert all(output.finish_reason is FinishReason.ERROR for output in outputs)
    assert all(output.error == "the device is gone" and not output.token_ids for output in outputs)
    assert not bench.engine.has_work
    bench.engine.check_integrity()
    assert bench.engine.stats().num_used_blocks == 0
    bench.reasons.clear()
    bench.tokens.clear()
    bench.run(mixed_requests[5])
    bench.check_output(mixed_requests[5])


def test_stats_tell_the_engines_state_and_its_latest_step(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(max_num_seqs=2, max_num_batched_tokens=10)
    for name in "abc":
        bench.engine.submit(make_request(name, 9, max_tokens=3))
    assert bench.engine.stats().num_waiting == 3
    bench.engine.step()
    bench.engine.step()
    stats = bench.engine.stats()
    assert (stats.num_steps, stats.num_running, stats.num_waiting) == (2, 2, 1)
    assert (stats.num_prefill_tokens, stats.num_decode_tokens) == (8, 1)
    assert stats.num_used_blocks + stats.num_cached_blocks + stats.num_free_blocks == 64
    assert stats.num_used_blocks == 3 + 3
    assert stats.duration_s == 1  # the clock ticks once per reading
    bench.run()
    done = bench.engine.stats()
    assert (done.num_running, done.num_waiting, done.num_used_blocks) == (0, 0, 0)
    assert done.num_cached_blocks == 3 * 2


def test_the_event_log_tells_what_the_cache_holds(
    make_bench: MakeBench, mixed_requests: list[GenerationRequest]
) -> None:
    bench = make_bench(num_blocks=23, max_num_seqs=20)
    bench.run(*mixed_requests)
    held: set[bytes] = set()
    batch = bench.engine.events.since(0)
    assert batch is not None
    for event in batch.events:
        held ^= {event.block_hash}
    assert held == {block.block_hash for block in bench.engine.events.snapshot().blocks}
    assert len(held) == bench.engine.stats().num_cached_blocks > 0
