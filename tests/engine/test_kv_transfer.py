"""What an engine gives to another one and takes from it, on the oracle model."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from headway.core.block_hash import block_hashes
from headway.core.errors import FailedPreconditionError, NotFoundError, ResourceExhaustedError
from headway.core.request import BeamSearch
from headway.engine.kv_transfer import NamedBlock
from tests.engine.oracle import Poisoned

BLOCK_SIZE = 4


def names(tokens: tuple[int, ...] | list[int]) -> list[bytes]:
    return block_hashes(tokens, block_size=BLOCK_SIZE)


def test_the_chain_of_a_running_sequence_grows_with_it(make_bench: Callable, make_request: Callable) -> None:
    bench = make_bench()
    request = make_request("a", 10, max_tokens=20)
    bench.engine.submit(request)
    assert bench.engine.kv_transfer.chains(["a"]) == [[]], "it waits"
    for _ in range(12):
        bench.step()
        tokens = [*request.prompt_token_ids, *bench.tokens["a"]]
        # The last token's keys and values are computed by the next step.
        assert bench.engine.kv_transfer.chains(["a"]) == [names(tokens[:-1])]
    bench.run()
    with pytest.raises(NotFoundError):
        bench.engine.kv_transfer.chains(["a"])


def test_samples_have_a_chain_each_and_those_that_ended_none(make_bench: Callable, make_group: Callable) -> None:
    bench = make_bench()
    group = make_group("a", 3, 9, max_tokens=30, temperature=1.0)
    bench.engine.submit_group(group)
    for _ in range(8):
        bench.step()
    ids = [request.request_id for request in group]
    assert bench.engine.kv_transfer.groups() == [tuple(ids)]
    chains = bench.engine.kv_transfer.chains(ids)
    assert [chain[:2] for chain in chains] == [names(group[0].prompt_token_ids)] * 3
    bench.engine.cancel(ids[1])
    assert bench.engine.kv_transfer.chains(ids) == [chains[0], chains[2]]


def test_a_beam_search_stays(make_bench: Callable, make_request: Callable) -> None:
    bench = make_bench()
    bench.engine.submit(make_request("a", 9, beam=BeamSearch(width=2)))
    bench.step()
    assert bench.engine.kv_transfer.groups() == []
    with pytest.raises(FailedPreconditionError, match="beam"):
        bench.engine.kv_transfer.chains(["a"])


def test_what_is_missing_comes_parents_first_and_only_once(make_bench: Callable, make_request: Callable) -> None:
    bench = make_bench()
    first = make_request("a", 8, max_tokens=1)
    bench.run(first)
    long = names([*first.prompt_token_ids, *range(8)])
    fork = names([*first.prompt_token_ids, *range(4), 9, 9, 9, 9])
    missing = bench.engine.kv_transfer.missing([long, fork], num_sequences=0)
    assert missing == [NamedBlock(long[2], long[1]), NamedBlock(long[3], long[2]), NamedBlock(fork[3], fork[2])]
    for block in missing:
        assert bench.engine.kv_transfer.admit(block) is not None
        assert bench.engine.kv_transfer.admit(block) is None, "it is here by now"
    assert bench.engine.kv_transfer.missing([long, fork], num_sequences=0) == []
    assert [place.name for place in bench.engine.kv_transfer.locate([*long, b"unknown", fork[3]])] == [*long, fork[3]]
    bench.engine.check_integrity()


@pytest.mark.parametrize("num_steps", [1, 3, 4, 9, 17])
@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 1.0}], ids=["greedy", "sampled"])
def test_a_sequence_goes_on_with_its_blocks_in_another_engine(
    make_bench: Callable, make_group: Callable, num_steps: int, sampling: dict[str, float]
) -> None:
    source, target = make_bench(), make_bench()
    requests = make_group("a", 2, 10, max_tokens=24, **sampling)
    source.engine.submit_group(requests)
    for _ in range(num_steps):
        source.step()
    ids = [request.request_id for request in requests]
    for block in target.engine.kv_transfer.missing(source.engine.kv_transfer.chains(ids), num_sequences=2):
        (place,) = source.engine.kv_transfer.locate([block.name])
        copied = target.engine.kv_transfer.admit(block)
        for slot in range(BLOCK_SIZE):
            target.runner.store[copied * BLOCK_SIZE + slot] = source.runner.store[place.block * BLOCK_SIZE + slot]
    moved = []
    for request in requests:
        assert source.engine.cancel(request.request_id)
        moved.append(replace(request, output_token_ids=tuple(source.tokens[request.request_id])))
        target.engine.submit(moved[-1])
    target.step()
    stats = target.engine.stats()
    assert stats.num_prefill_tokens + stats.num_decode_tokens <= 2 * BLOCK_SIZE, "no full block is computed twice"
    target.run()
    for request in moved:
        target.check_output(request)
    assert source.engine.block_stats().num_used == 0


def test_sequences_that_would_wait_are_refused(make_bench: Callable, make_request: Callable) -> None:
    bench = make_bench(max_num_seqs=2)
    bench.engine.submit(make_request("a", 9))
    bench.step()
    kv_transfer = bench.engine.kv_transfer
    assert kv_transfer.missing([[], []], num_sequences=1) == []
    with pytest.raises(ResourceExhaustedError, match="1 of 2 sequences"):
        kv_transfer.missing([[], []], num_sequences=2)


def test_blocks_without_room_are_refused(make_bench: Callable, make_request: Callable) -> None:
    bench = make_bench(num_blocks=8)
    bench.engine.submit(make_request("a", 17))
    bench.step()
    assert len(bench.engine.kv_transfer.missing([names(range(12))], num_sequences=0)) == 3
    with pytest.raises(ResourceExhaustedError, match="no room for 4 KV blocks"):
        bench.engine.kv_transfer.missing([names(range(16))], num_sequences=0)


def test_without_a_prefix_cache_nothing_is_taken(make_bench: Callable) -> None:
    with pytest.raises(FailedPreconditionError):
        make_bench(enable_prefix_cache=False).engine.kv_transfer.missing([names(range(8))], num_sequences=0)


def test_nothing_moves_until_a_step_has_made_up_for_copies_of_one_that_failed(
    make_bench: Callable, make_group: Callable
) -> None:
    bench = make_bench()
    requests = make_group("a", 2, 10, max_tokens=6, temperature=1.0)
    prefix = names(requests[0].prompt_token_ids[:8])
    bench.engine.submit_group(requests)
    bench.step()
    bench.runner.refused = {request.request_id for request in requests}
    with pytest.raises(Poisoned):
        bench.engine.step()  # in which the last block of the prompt, that both write to, would be copied
    kv_transfer, newcomer = bench.engine.kv_transfer, NamedBlock(b"new", b"")
    for recover in (lambda: None, lambda: bench.engine.recover("It failed.")):
        recover()
        assert kv_transfer.locate(prefix) == []
        assert kv_transfer.admit(newcomer) is None
    bench.runner.refused = set()
    bench.step()
    assert [place.name for place in kv_transfer.locate(prefix)] == prefix
    assert kv_transfer.admit(newcomer) is not None
    bench.run()
    for request in requests:
        bench.check_output(request)
