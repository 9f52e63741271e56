"""Groups, pinned prefixes, and what the worker tells of its blocks, over a real socket."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from headway.core.block_hash import block_hashes
from headway.v1 import common_pb2, worker_pb2
from tests.worker.conftest import Bench

BLOCK_SIZE = 16
PREFIX = tuple(range(3, 3 + 5 * BLOCK_SIZE))


@pytest.fixture
async def tiered(unloaded: Bench, tiny: Path) -> Bench:
    """A worker whose device holds few blocks and whose host many."""
    order = worker_pb2.LoadModelRequest(
        model="tiny",
        directory=str(tiny),
        num_blocks=20,
        num_host_blocks=64,
        block_size=BLOCK_SIZE,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        max_model_len=200,
        enable_prefix_cache=True,
    )
    assert [message async for message in unloaded.stub.LoadModel(order)][-1].done
    return unloaded


def group(request_id: str, *, n: int = 1, prompt: tuple[int, ...] = PREFIX, max_tokens: int = 8) -> object:
    sequences = [
        worker_pb2.SubmitSequence(
            request_id=f"{request_id}/{i}",
            model="tiny",
            prompt_token_ids=() if i else prompt,
            sampling=common_pb2.SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=i, ignore_eos=True),
        )
        for i in range(n)
    ]
    return worker_pb2.GenerateTokensRequest(submit_group=worker_pb2.SubmitGroup(sequences=sequences))


async def run(bench: Bench, *requests: object) -> dict[str, list[worker_pb2.SequenceOutput]]:
    async def send() -> AsyncIterator[object]:
        for request in requests:
            yield request

    outputs: dict[str, list[worker_pb2.SequenceOutput]] = {}
    async for message in bench.stub.GenerateTokens(send()):
        for output in message.outputs:
            outputs.setdefault(output.request_id, []).append(output)
    return outputs


async def usage(bench: Bench) -> common_pb2.KvUsage:
    return (await bench.stub.GetBlocks(worker_pb2.GetBlocksRequest())).usage


async def set_pins(bench: Bench, **pins: tuple[int, ...]) -> list[tuple[str, int, str]]:
    request = worker_pb2.SetPinsRequest(
        model="tiny", pins=[worker_pb2.Pin(name=name, token_ids=token_ids) for name, token_ids in pins.items()]
    )
    response = await bench.stub.SetPins(request)
    return [(state.name, state.num_blocks, state.fault) for state in response.states]


async def known_hashes(bench: Bench) -> set[bytes]:
    """What the prefix index is told at its first look."""
    call = bench.stub.WatchBlocks(worker_pb2.WatchBlocksRequest())
    snapshot = await call.read()
    call.cancel()
    return {event.block_hash for event in snapshot.events}


async def test_a_group_is_taken_with_one_prompt_and_refused_as_a_whole(bench: Bench) -> None:
    outputs = await run(bench, group("g", n=4), group("long", n=2, prompt=(5,) * 600))
    tokens = {
        request_id: [token_id for output in sequence for token_id in output.token_ids]
        for request_id, sequence in outputs.items()
    }
    assert [len(tokens[f"g/{i}"]) for i in range(4)] == [8] * 4
    assert len({tuple(tokens[f"g/{i}"]) for i in range(4)}) == 4
    for i in range(2):
        (refusal,) = outputs[f"long/{i}"]
        assert refusal.error.code == "invalid_argument"


async def test_a_running_group_is_described_with_who_shares_its_blocks(bench: Bench) -> None:
    stream = bench.stub.GenerateTokens()
    await stream.write(group("req-1.0123abcd", n=3, max_tokens=200))
    await stream.read()
    described = await bench.stub.GetBlockTables(worker_pb2.GetBlockTablesRequest(request_id="req-1"))
    tables = {sequence.label: sequence for sequence in described.sequences}
    assert list(tables) == [f"req-1.0123abcd/{i}" for i in range(3)]
    first = tables["req-1.0123abcd/0"]
    assert first.num_prompt_tokens == len(PREFIX)
    assert [list(use.shared_with) for use in first.blocks[:5]] == [["req-1.0123abcd/1", "req-1.0123abcd/2"]] * 5
    blocks = await usage(bench)
    assert (blocks.num_running, blocks.num_shared_blocks) == (3, 5)
    assert blocks.num_table_entries - blocks.num_allocated_slots // BLOCK_SIZE == 10
    stream.cancel()
    with pytest.raises(grpc.aio.AioRpcError) as fault:
        await bench.stub.GetBlockTables(worker_pb2.GetBlockTablesRequest(request_id="req"))
    assert fault.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_pinned_prefix_is_computed_once_and_stays(tiered: Bench) -> None:
    assert await set_pins(tiered, system=(*PREFIX, 7)) == [("system", 5, "")]
    assert await set_pins(tiered, system=(*PREFIX, 7)) == [("system", 5, "")]
    for i in range(6):  # far more than the device holds
        await run(tiered, group(f"r{i}", prompt=tuple(range(i + 100, i + 250))))
    blocks = await usage(tiered)
    assert (blocks.num_used_blocks, blocks.num_pinned_blocks) == (5, 5)
    outputs = await run(tiered, group("hit", prompt=(*PREFIX, 9)))
    assert outputs["hit/0"][0].num_cached_tokens == len(PREFIX)
    assert await set_pins(tiered) == []
    assert (await usage(tiered)).num_used_blocks == 0


async def test_a_prefix_that_cannot_be_pinned_says_why(tiered: Bench) -> None:
    states = await set_pins(tiered, short=(1, 2, 3), huge=tuple(range(1, 199)), good=PREFIX[:32])
    assert [(name, num_blocks) for name, num_blocks, _ in states] == [("short", 0), ("huge", 0), ("good", 2)]
    assert "whole blocks" in states[0][2]
    assert "half" in states[1][2]
    assert states[2][2] == ""


async def test_pinned_and_host_prefixes_are_told_to_the_index(tiered: Bench) -> None:
    await set_pins(tiered, system=PREFIX[:32])
    await run(tiered, group("first"))
    for i in range(4):
        await run(tiered, group(f"r{i}", prompt=tuple(range(i + 100, i + 250))))
    assert (await usage(tiered)).num_cached_host_blocks > 0
    assert set(block_hashes(PREFIX, block_size=BLOCK_SIZE)) <= await known_hashes(tiered)
    outputs = await run(tiered, group("back", prompt=(*PREFIX, 9)))
    assert outputs["back/0"][0].num_cached_tokens == len(PREFIX), "the host gives back what the device gave up"


async def test_an_empty_worker_tells_of_no_blocks(unloaded: Bench) -> None:
    assert (await usage(unloaded)).num_free_blocks == 0
