"""What each step holds, seen through the batches that reach the runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headway.core.request import GenerationRequest

if TYPE_CHECKING:
    from tests.engine.conftest import Bench

MakeBench = Callable[..., "Bench"]
MakeRequest = Callable[..., GenerationRequest]


def test_a_long_prompt_is_computed_in_chunks_of_the_budget(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(max_num_batched_tokens=7, max_num_seqs=4)
    bench.run(make_request("a", 20, max_tokens=2))
    assert bench.runner.batches == [[("a", 7)], [("a", 7)], [("a", 6)], [("a", 1)]]


def test_decodes_and_a_prefill_chunk_share_a_step(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(max_num_batched_tokens=8, max_num_seqs=4)
    bench.engine.submit(make_request("a", 3))
    bench.engine.submit(make_request("b", 2))
    bench.step()
    bench.engine.submit(make_request("c", 20))
    bench.step()
    bench.step()
    assert bench.runner.batches == [
        [("a", 3), ("b", 2)],
        [("a", 1), ("b", 1), ("c", 6)],
        [("a", 1), ("b", 1), ("c", 6)],
    ]


def test_the_prefill_limit_leaves_decodes_alone(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(max_num_prefill_tokens=3, max_num_seqs=8)
    bench.engine.submit(make_request("a", 3))
    bench.step()
    bench.engine.submit(make_request("b", 4))
    bench.engine.submit(make_request("c", 9))
    for _ in range(3):
        bench.step()
    assert bench.runner.batches == [
        [("a", 3)],
        [("a", 1), ("b", 3)],
        [("a", 1), ("b", 1), ("c", 3)],
        [("a", 1), ("b", 1), ("c", 3)],
    ]


def test_no_more_sequences_run_than_allowed(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(max_num_seqs=2)
    bench.run(*(make_request(name, 5, max_tokens=3) for name in "abcde"))
    assert max(len(batch) for batch in bench.runner.batches) == 2
    assert bench.first_outputs == list("abcde")


def test_when_memory_runs_out_the_latest_arrival_gives_way(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(num_blocks=6, enable_prefix_cache=False)
    requests = [make_request(name, 7, max_tokens=9) for name in "abc"]
    for request in requests:
        bench.engine.submit(request)
    bench.step()  # two blocks each
    bench.step()
    assert [name for name, _ in bench.runner.batches[-1]] == ["a", "b", "c"]
    bench.step()  # "a" needs a third block, takes it from "c", and "b" takes the other
    assert [name for name, _ in bench.runner.batches[-1]] == ["a", "b"]
    assert bench.engine.stats().num_preemptions == 1
    bench.run()
    for request in requests:
        bench.check_output(request)


def test_a_preempted_sequence_comes_back_before_newer_arrivals(
    make_bench: MakeBench, make_request: MakeRequest
) -> None:
    bench = make_bench(num_blocks=6, enable_prefix_cache=False)
    for name in "abc":
        bench.engine.submit(make_request(name, 7, max_tokens=9))
    for _ in range(3):
        bench.step()
    bench.engine.submit(make_request("d", 1, max_tokens=1))
    bench.run()
    came_back = next(i for i, batch in enumerate(bench.runner.batches) if i > 2 and "c" in dict(batch))
    assert dict(bench.runner.batches[came_back])["c"] == 9  # its prompt and the two tokens it had
    assert not any("d" in dict(batch) for batch in bench.runner.batches[:came_back])


def test_a_preempted_sequence_comes_back_when_all_of_it_fits(make_bench: MakeBench, make_request: MakeRequest) -> None:
    """Its next chunk would fit at once into the block that is left over, but not what follows."""
    bench = make_bench(num_blocks=7, enable_prefix_cache=False, max_num_prefill_tokens=4)
    for name in "abc":
        bench.engine.submit(make_request(name, 4, max_tokens=9))
    while bench.engine.stats().num_preemptions == 0:
        bench.step()
    assert bench.engine.stats().num_free_blocks == 1
    bench.run()
    assert bench.engine.stats().num_preemptions == 1
    names = [[name for name, _ in batch] for batch in bench.runner.batches]
    last_of_a = max(index for index, batch in enumerate(names) if "a" in batch)
    preempted_at = next(index for index, batch in enumerate(names) if index > 3 and "c" not in batch)
    assert not any("c" in batch for batch in names[preempted_at : last_of_a + 1])


def test_admission_leaves_the_watermark_to_those_who_run(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(num_blocks=10, watermark=0.2)
    bench.engine.submit(make_request("a", 31))  # 8 of 10 blocks: alone it may take all
    bench.engine.submit(make_request("b", 3))
    bench.step()
    assert bench.runner.batches == [[("a", 31)]]
    bench.run()
    assert bench.first_outputs == ["a", "b"]


def test_a_shared_prefix_is_computed_once(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench()
    prefix = tuple(range(20))
    first, second = make_request("a", (*prefix, 30, 31)), make_request("b", (*prefix, 40, 41))
    bench.run(first)
    bench.run(second)
    assert bench.runner.batches[0] == [("a", 22)]
    assert next(batch for batch in bench.runner.batches if "b" in dict(batch)) == [("b", 2)]
    for request in (first, second):
        bench.check_output(request)
    stats = bench.engine.stats()
    assert (stats.num_prefix_queries, stats.num_prefix_hits) == (44, 20)


def test_outputs_are_shared_like_prompts(make_bench: MakeBench, make_request: MakeRequest) -> None:
    """A second turn of a conversation finds the first turn's answer in the cache."""
    bench = make_bench()
    first = make_request("a", 10, max_tokens=15)
    bench.run(first)
    turn = make_request("b", (*first.prompt_token_ids, *bench.tokens["a"], 1, 2, 3))
    bench.run(turn)
    bench.check_output(turn)
    assert next(batch for batch in bench.runner.batches if "b" in dict(batch)) == [("b", 28 - 24)]
