"""vLLM's figures and cache events in our terms; needs no vLLM."""

import random

from headway.core.block_hash import block_hashes
from headway.core.request import GenerationRequest, SamplingParams
from headway.engine.events import BlockEventLog
from headway.worker.engine_totals import EngineTotals, Step
from headway.worker.vllm.block_names import BlockNames

SIZE = 4


def cached(log: BlockEventLog) -> set[bytes]:
    return {event.block_hash for event in log.snapshot().blocks}


def test_blocks_have_the_names_that_the_gateway_looks_for() -> None:
    log = BlockEventLog()
    names = BlockNames(log, block_size=SIZE)
    tokens = list(range(3 * SIZE))
    names.store(["a", "b"], parent=None, token_ids=tokens[: 2 * SIZE], salt="tenant")
    names.store(["c"], parent="b", token_ids=tokens[2 * SIZE :])
    assert [event.block_hash for event in log.snapshot().blocks] == block_hashes(
        tokens, block_size=SIZE, salt=b"tenant"
    )
    names.store(["x"], parent="never stored", token_ids=tokens[:SIZE])
    assert names.num_blocks == 3
    names.clear()
    assert cached(log) == set()


def test_the_index_holds_what_vllm_holds_whatever_comes_and_goes() -> None:
    rng = random.Random(5)
    log = BlockEventLog()
    names = BlockNames(log, block_size=SIZE)
    prompts = [[rng.randrange(3) for _ in range(SIZE * 4)] for _ in range(6)]
    held: dict[tuple[int, int, int], bytes] = {}  # by copy, prompt and block
    for copy in range(200):
        number = rng.randrange(len(prompts))
        own = [(copy, number, index) for index in range(4)]
        names.store(own, parent=None, token_ids=prompts[number])
        held |= dict(zip(own, block_hashes(prompts[number], block_size=SIZE), strict=True))
        gone = rng.sample(sorted(held), min(len(held), rng.randrange(8)))
        names.remove([*gone, "never stored"])
        for each in gone:
            del held[each]
        assert cached(log) == set(held.values())


def request(name: str, num_tokens: int) -> GenerationRequest:
    return GenerationRequest(
        request_id=name, model="m", prompt_token_ids=tuple(range(num_tokens)), sampling=SamplingParams()
    )


def step(num_prefill: int, num_decodes: int, *, usage: float = 0.5) -> Step:
    return Step(
        num_running=2,
        num_waiting=0,
        num_prefill_tokens=num_prefill,
        num_decodes=num_decodes,
        duration_s=0.01,
        kv_usage=usage,
        num_prefix_queries=num_prefill,
    )


def test_steps_add_up_to_work() -> None:
    totals = EngineTotals(num_blocks=10)
    totals.begin(request("a", 6))
    totals.begin(request("b", 4))
    assert totals.stats(num_cached_blocks=0).num_pending_prefill_tokens == 10
    totals.note_step(step(8, 0))
    assert totals.stats(num_cached_blocks=3).num_pending_prefill_tokens == 2
    totals.note_tokens("a", 1)
    totals.note_step(step(2, 1))
    totals.note_tokens("b", 1)
    stats = totals.stats(num_cached_blocks=9)
    assert (stats.num_running, stats.num_waiting, stats.num_context_tokens) == (2, 0, 12)
    assert (stats.num_used_blocks, stats.num_cached_blocks, stats.num_free_blocks) == (5, 5, 0)
    work = stats.work
    assert (work.num_steps, work.num_prefill_tokens, work.num_decodes, work.num_context_tokens) == (2, 10, 1, 7)
    assert work.num_prefill_pairs == 6 * 3 + 2 * 1 + 2 * (2 + 1)
    assert stats.num_prefix_queries == 10


def test_nothing_is_used_once_nothing_lives() -> None:
    totals = EngineTotals(num_blocks=10)
    totals.begin(request("a", 6))
    totals.note_step(step(6, 0))
    assert totals.end("a")
    assert not totals.end("a")
    stats = totals.stats(num_cached_blocks=2)
    assert (stats.num_running, stats.num_used_blocks, stats.num_cached_blocks, stats.num_free_blocks) == (0, 0, 2, 8)


def test_a_sequence_does_not_run_by_a_step_from_before_it() -> None:
    totals = EngineTotals(num_blocks=10)
    totals.begin(request("a", 6))
    totals.note_step(step(6, 0))
    totals.end("a")
    totals.begin(request("b", 6))
    stats = totals.stats(num_cached_blocks=2)
    assert (stats.num_running, stats.num_waiting, stats.num_used_blocks) == (0, 1, 0)
    totals.note_step(step(6, 0))
    stats = totals.stats(num_cached_blocks=2)
    assert (stats.num_running, stats.num_waiting, stats.num_used_blocks) == (1, 0, 5)
