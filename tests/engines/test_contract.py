"""The contract that every engine keeps: what a worker does with it, over a real socket."""

import asyncio
import random
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import grpc
import pytest

from headway.core.block_hash import block_hashes
from headway.core.engine_kind import FEATURES, EngineKind, Feature
from headway.rpc.status import error_from_rpc
from headway.v1 import common_pb2, worker_pb2
from tests.adapters import make_adapter, merge_adapter
from tests.engines.worker import BLOCK_SIZE, MAX_LEN, NUM_BLOCKS, PROMPT, EngineWorker, load, sequence
from tests.worker.conftest import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

GREEDY = {"temperature": 0.0}
SEEDED = {"temperature": 1.0, "seed": 11}
_NUM_RANDOM = {EngineKind.HEADWAY: 60, EngineKind.VLLM: 500, EngineKind.VLLM_SERVER: 30}
_NEEDS = {
    Feature.BEAM_SEARCH: {
        "beam": common_pb2.BeamSearch(width=2, num_hypotheses=1, length_penalty=1.0, early_stopping="false")
    },
    Feature.GUIDED: {"guide": common_pb2.Guide(kind="regex", text="[ab]{4}")},
    Feature.BAD_WORDS: {"bad_token_ids": [common_pb2.TokenSequence(token_ids=[3])]},
    Feature.LOGPROBS: {"num_logprobs": 2},
    Feature.PROMPT_LOGPROBS: {"num_prompt_logprobs": 1},
}
_RESUMED = {
    Feature.RESUME_GREEDY: GREEDY,
    Feature.RESUME_SEEDED: SEEDED,
    Feature.RESUME_PENALTIES: {**GREEDY, "presence_penalty": 1.5, "frequency_penalty": 0.5},
}


async def test_it_says_which_engine_it_is(engine: EngineWorker) -> None:
    described = await engine.stub.GetWorker(worker_pb2.GetWorkerRequest())
    (replica,) = described.replicas
    assert (replica.engine, replica.state, replica.num_blocks) == (engine.kind, "ready", NUM_BLOCKS)
    assert replica.weight_bytes > 0


async def test_an_answer_has_as_many_tokens_as_were_asked_for(engine: EngineWorker) -> None:
    (answer,) = await engine.generate(sequence(**GREEDY))
    assert len(answer.tokens) == 24
    assert answer.finish_reason == common_pb2.FINISH_REASON_LENGTH
    assert answer.error is None


async def test_the_same_seed_draws_the_same_tokens(engine: EngineWorker) -> None:
    once, again, other = [
        (await engine.generate(sequence(temperature=1.0, seed=seed)))[0].tokens for seed in (11, 11, 12)
    ]
    assert once == again != other


async def test_samples_of_one_prompt_have_their_own_tokens(engine: EngineWorker) -> None:
    answers = await engine.generate(*(sequence(temperature=1.0, seed=seed) for seed in range(3)))
    assert len({tuple(answer.tokens) for answer in answers}) == 3


async def test_a_stop_token_ends_a_sequence_and_is_told(engine: EngineWorker) -> None:
    (whole,) = await engine.generate(sequence(**GREEDY))
    stop = next(token for token in whole.tokens[4:] if token not in whole.tokens[:4])
    (answer,) = await engine.generate(sequence(stop_token_ids=[stop], **GREEDY))
    assert answer.tokens == whole.tokens[: whole.tokens.index(stop) + 1]
    assert (answer.finish_reason, answer.stop_token_id) == (common_pb2.FINISH_REASON_STOP, stop)


async def test_a_bias_is_obeyed(engine: EngineWorker) -> None:
    bias = [common_pb2.LogitBias(token_id=5, bias=100.0)]
    (answer,) = await engine.generate(sequence(max_tokens=3, logit_bias=bias, **GREEDY))
    assert answer.tokens == [5, 5, 5]


async def test_an_unfit_request_is_refused_by_name_and_harms_nobody(engine: EngineWorker) -> None:
    unknown = await engine.generate(sequence((5, 100_000), **GREEDY))
    long = await engine.generate(sequence(tuple([5] * (MAX_LEN + 1)), **GREEDY))
    for (answer,) in (unknown, long):
        assert answer.error is not None
        assert answer.error.code == "invalid_argument"
        assert answer.error.field == "prompt_token_ids"
    (after,) = await engine.generate(sequence(max_tokens=2, **GREEDY))
    assert len(after.tokens) == 2


async def test_a_prefix_is_computed_once(engine: EngineWorker) -> None:
    prompt = tuple(400 - index for index in range(3 * BLOCK_SIZE + 5))
    first, again = [(await engine.generate(sequence(prompt, **GREEDY)))[0] for _ in range(2)]
    assert (first.num_cached_tokens, again.num_cached_tokens) == (0, 3 * BLOCK_SIZE)
    assert first.tokens == again.tokens
    (salted,) = await engine.generate(sequence(prompt, salt="another tenant", **GREEDY))
    assert salted.num_cached_tokens == 0
    assert salted.tokens == first.tokens


@pytest.mark.parametrize("salt", ["", "a tenant"])
async def test_the_index_hears_of_every_block_under_its_name(engine: EngineWorker, salt: str) -> None:
    prompt = tuple(3 + len(salt) + index * 7 % 300 for index in range(4 * BLOCK_SIZE))
    names = set(block_hashes(prompt, block_size=BLOCK_SIZE, salt=salt.encode()))
    known: set[bytes] = set()
    updates = engine.stub.WatchBlocks(worker_pb2.WatchBlocksRequest())
    await engine.generate(sequence(prompt, salt=salt, max_tokens=2, **GREEDY))
    async with asyncio.timeout(60):
        async for update in updates:
            known = take_blocks(update, known)
            if names <= known:
                break
    updates.cancel()


async def test_the_index_foretells_the_engines_own_hits(engine: EngineWorker) -> None:
    """The cache is far too small for all prompts, so what the index was told is gone counts as much."""
    rng = random.Random(34)
    known: set[bytes] = set()
    call = engine.stub.WatchBlocks(worker_pb2.WatchBlocksRequest())
    updates = aiter(call)
    foretold = found = 0
    before = await engine.load_report()
    async with asyncio.timeout(400):
        for _ in range(_NUM_RANDOM[engine.kind]):
            prompt = random_prompt(rng)
            names = block_hashes(prompt, block_size=BLOCK_SIZE, salt=b"")
            foretold += BLOCK_SIZE * sum(1 for _ in takewhile(known.__contains__, names))
            (answer,) = await engine.generate(sequence(prompt, max_tokens=2, **GREEDY))
            found += answer.num_cached_tokens
            while not known.issuperset(names):
                known = take_blocks(await anext(updates), known)
    call.cancel()
    after = await engine.until_idle()
    assert found > 0
    assert foretold == pytest.approx(found, rel=0.02)
    assert after.num_prefix_hit_tokens - before.num_prefix_hit_tokens == found
    assert len(known) <= NUM_BLOCKS


def random_prompt(rng: random.Random) -> tuple[int, ...]:
    """Whole blocks that other prompts may begin with too, and a few tokens more: no answer fills another block."""
    branches = [rng.randrange(3) for _ in range(rng.randint(1, 6))]
    blocks = [
        20 + 100 * branch + (depth + index * 7) % 90
        for depth, branch in enumerate(branches)
        for index in range(BLOCK_SIZE)
    ]
    return (*blocks, *(rng.randrange(400) for _ in range(rng.randint(1, BLOCK_SIZE - 4))))


def take_blocks(update: worker_pb2.WatchBlocksResponse, known: set[bytes]) -> set[bytes]:
    """The blocks that are known after an update."""
    known = set() if update.snapshot else known
    for event in update.events:
        (known.add if event.kind == worker_pb2.BlockEvent.KIND_STORED else known.discard)(event.block_hash)
    return known


async def test_a_cancelled_sequence_gives_its_blocks_back(engine: EngineWorker) -> None:
    prompt = tuple(index * 13 % 450 for index in range(9 * BLOCK_SIZE))
    asked = sequence(prompt, max_tokens=MAX_LEN - len(prompt), **GREEDY)
    async with engine.stream(asked) as call, asyncio.timeout(60):
        async for _ in call:
            break
        cancel = worker_pb2.CancelSequence(request_id=asked.request_id)
        await call.write(worker_pb2.GenerateTokensRequest(cancel=cancel))
        await engine.until_idle()
    # As many as there are blocks for run beside each other at once: none is lost.
    whole = (NUM_BLOCKS - 2) * BLOCK_SIZE // 2 - 32
    answers = await asyncio.gather(
        *(engine.generate(sequence(tuple([9 + n] * min(whole, MAX_LEN - 32)), max_tokens=8, **GREEDY)) for n in (0, 1))
    )
    assert [len(answer.tokens) for (answer,) in answers] == [8, 8]


async def test_a_stream_that_breaks_cancels_its_sequences(engine: EngineWorker) -> None:
    async with engine.stream(sequence(max_tokens=400, **GREEDY)) as call:
        async for _ in call:
            break
    await engine.until_idle()


async def test_the_load_is_told(engine: EngineWorker) -> None:
    before = await engine.load_report()
    prompt = tuple(index * 17 % 440 for index in range(70))
    async with engine.stream(sequence(prompt, max_tokens=300, **GREEDY)) as call, asyncio.timeout(60):
        await call.done_writing()
        async for _ in call:
            break
        async for report in engine.stub.WatchLoad(worker_pb2.WatchLoadRequest(interval_ms=5)):
            if report.num_running == 1 and report.num_context_tokens >= 71:
                assert report.num_free_blocks < report.num_blocks
                break
    after = await engine.until_idle()
    assert after.max_num_seqs == 8
    assert after.work.num_steps > before.work.num_steps
    assert after.work.num_prefill_tokens - before.work.num_prefill_tokens >= 70
    assert after.work.duration_s > before.work.duration_s
    assert after.num_prefix_query_tokens - before.num_prefix_query_tokens >= 70


@pytest.mark.parametrize("feature", _NEEDS)
async def test_a_request_gets_what_it_needs_or_the_features_name(engine: EngineWorker, feature: Feature) -> None:
    (answer,) = await engine.generate(sequence(max_tokens=4, **GREEDY, **_NEEDS[feature]))
    if feature not in FEATURES[engine.kind]:
        assert answer.tokens == []
        assert answer.error is not None
        assert (answer.error.code, answer.error.field) == ("invalid_argument", feature)
        return
    assert answer.error is None
    if feature is Feature.LOGPROBS:
        assert [entry.token_id for entry in answer.logprobs] == answer.tokens
        assert all(len(entry.top_token_ids) == 2 and entry.rank == 1 for entry in answer.logprobs)
        assert all(entry.logprob == pytest.approx(entry.top_logprobs[0]) for entry in answer.logprobs)
    if feature is Feature.PROMPT_LOGPROBS:
        assert [entry.token_id for entry in answer.prompt_logprobs] == list(PROMPT[1:])


@pytest.mark.parametrize("feature", _RESUMED)
async def test_a_stream_goes_on_exactly_or_says_that_it_cannot(engine: EngineWorker, feature: Feature) -> None:
    (whole,) = await engine.generate(sequence(**_RESUMED[feature]))
    (rest,) = await engine.generate(sequence(outputs=tuple(whole.tokens[:17]), **_RESUMED[feature]))
    if feature in FEATURES[engine.kind]:
        assert rest.tokens == whole.tokens[17:]
    else:
        assert rest.tokens == []
        assert rest.error is not None
        assert rest.error.code == "failed_precondition"
        assert feature in rest.error.message


async def test_a_stream_with_a_repetition_penalty_goes_on_exactly(engine: EngineWorker) -> None:
    (whole,) = await engine.generate(sequence(repetition_penalty=1.3, **GREEDY))
    (rest,) = await engine.generate(sequence(outputs=tuple(whole.tokens[:17]), repetition_penalty=1.3, **GREEDY))
    assert rest.tokens == whole.tokens[17:]


async def test_an_adapter_changes_the_model_or_is_refused_by_the_features_name(
    engine: EngineWorker, tiny: Path, tmp_path: Path
) -> None:
    adapter = make_adapter(tmp_path / "calm", tiny)
    (plain,) = await engine.generate(sequence(**GREEDY))
    (changed,) = await engine.generate(sequence(salt=adapter.key, adapter=adapter, **GREEDY))
    if Feature.LORA not in FEATURES[engine.kind]:
        assert changed.tokens == []
        assert changed.error is not None
        assert (changed.error.code, changed.error.field) == ("invalid_argument", Feature.LORA)
        return
    async with serving() as bench:  # our own engine, with the adapter in the weights
        await load(bench.stub, merge_adapter(tmp_path / "merged", tiny, adapter))
        (expected,) = await EngineWorker(EngineKind.HEADWAY, bench.stub).generate(sequence(**GREEDY))
    assert changed.tokens == expected.tokens != plain.tokens
    (again,) = await engine.generate(sequence(**GREEDY))
    assert again.tokens == plain.tokens
    report = await engine.load_report()
    assert list(report.adapters) == [adapter.key]
    broken = replace(adapter, directory=str(tmp_path / "nowhere"), digest="")
    (refused,) = await engine.generate(sequence(salt=broken.key, adapter=broken, **GREEDY))
    assert refused.error is not None
    assert (refused.error.code, refused.error.field) == ("invalid_argument", "adapter")
    (after,) = await engine.generate(sequence(salt=adapter.key, adapter=adapter, **GREEDY))
    assert after.tokens == expected.tokens


async def test_commands_need_their_features(engine: EngineWorker) -> None:
    request = worker_pb2.SetPinsRequest(model="tiny", pins=[worker_pb2.Pin(name="system", token_ids=PROMPT)])
    if Feature.PINS in FEATURES[engine.kind]:
        (state,) = (await engine.stub.SetPins(request)).states
        assert state.num_blocks == len(PROMPT) // BLOCK_SIZE
        await engine.stub.SetPins(worker_pb2.SetPinsRequest(model="tiny"))
    else:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await engine.stub.SetPins(request)
        assert Feature.PINS in error_from_rpc(refused.value).message


async def test_blocks_add_up_to_the_pool(engine: EngineWorker) -> None:
    await engine.until_idle()
    usage = (await engine.stub.GetBlocks(worker_pb2.GetBlocksRequest())).usage
    assert usage.num_used_blocks == 0
    assert usage.num_cached_blocks + usage.num_free_blocks == NUM_BLOCKS
