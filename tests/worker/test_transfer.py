"""Blocks and running requests from worker to worker, over real sockets: two workers in this process."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from headway.core.block_hash import block_hashes
from headway.core.request import SequenceOutput
from headway.engine.engine import Engine
from headway.v1 import common_pb2, worker_pb2
from tests.worker.conftest import NUM_BLOCKS, Bench, load, serving
from tests.worker.streams import GREEDY, PROMPT, SEEDED, Stream, check_integrity, sampling, stream


class Pace:
    """Steps are slow, so that no request ends before it can be moved, however busy the machine is."""

    def __init__(self) -> None:
        self._pause_s = 0.008

    def pause(self) -> None:
        time.sleep(self._pause_s)

    def hurry(self) -> None:
        """What was to be moved has been."""
        self._pause_s = 0.0

    @contextmanager
    def unhindered(self) -> Iterator[None]:
        """Here nothing is moved."""
        pause_s, self._pause_s = self._pause_s, 0.0
        yield
        self._pause_s = pause_s


@pytest.fixture(autouse=True)
def pace(monkeypatch: pytest.MonkeyPatch) -> Pace:
    step, pace = Engine.step, Pace()

    def slow_step(engine: Engine) -> list[SequenceOutput]:
        pace.pause()
        return step(engine)

    monkeypatch.setattr(Engine, "step", slow_step)
    return pace


@pytest.fixture
async def pair(tiny: Path) -> AsyncIterator[dict[str, Bench]]:
    async with AsyncExitStack() as stack:
        names = ("worker-0", "worker-1")
        yield {name: await load(await stack.enter_async_context(serving(name)), tiny) for name in names}


async def move(
    pair: dict[str, Bench], request_id: str = "req", to: str = "worker-1"
) -> worker_pb2.MoveSequencesResponse:
    source = next(bench for name, bench in pair.items() if name != to)
    target = worker_pb2.MoveTarget(worker_id=to, endpoint=pair[to].endpoint)
    return await source.stub.MoveSequences(worker_pb2.MoveSequencesRequest(request_id=request_id, target=target))


async def fetch(
    source: Bench, target: Bench, tokens: list[int], *, block_size: int = 16, num_sequences: int = 0
) -> worker_pb2.FetchBlocksResponse:
    chain = worker_pb2.BlockChain(block_hashes=block_hashes(tokens, block_size=block_size))
    request = worker_pb2.FetchBlocksRequest(
        model="tiny", source_endpoint=source.endpoint, chains=[chain], num_sequences=num_sequences
    )
    return await target.stub.FetchBlocks(request)


async def wait_until_known(bench: Bench, request_id: str) -> None:
    """Until the engine has the request."""
    thread = bench.service.require_generator().engine.thread
    while request_id not in await thread.call(lambda engine: engine.request_ids()):
        pass


@pytest.mark.parametrize(
    ("n", "fields"),
    [(1, GREEDY), (1, SEEDED), (1, {**GREEDY, "frequency_penalty": 0.5}), (2, SEEDED), (3, SEEDED)],
    ids=["greedy", "seeded", "penalised", "two samples", "three samples"],
)
async def test_a_moved_request_gives_the_tokens_of_one_that_stayed(
    pair: dict[str, Bench], pace: Pace, fields: dict[str, Any], n: int
) -> None:
    with pace.unhindered():
        expected = await stream(pair, n=n, name="undisturbed", prompt=PROMPT, **fields).run("worker-0")
    moving = stream(pair, n=n, **fields)
    task = asyncio.create_task(moving.run("worker-0"))
    await moving.reached.wait()
    moved = await move(pair)
    pace.hurry()
    assert list((await task).values()) == list(expected.values())
    assert moving.places == ["worker-0", "worker-1"]
    assert moved.num_sequences == n
    assert moved.recompute_reason == ""
    assert moved.num_blocks * 16 >= len(PROMPT) // 16 * 16
    # All but what became full while the last blocks went, and the last partial block.
    assert moving.num_cached[1] >= len(PROMPT)
    for bench in pair.values():
        await check_integrity(bench)


async def test_so_does_one_whose_steps_overlap(overlapped_steps: None, pair: dict[str, Bench], pace: Pace) -> None:
    assert pair["worker-0"].service.require_generator().engine.runner.runs_ahead
    await test_a_moved_request_gives_the_tokens_of_one_that_stayed(pair, pace, SEEDED, 2)


async def test_a_request_moves_there_and_back_under_load(pair: dict[str, Bench], pace: Pace) -> None:
    others = [stream(pair, name=f"other-{i}", prompt=PROMPT[i:], **GREEDY) for i in range(1, 5)]
    with pace.unhindered():
        expected = [await other.run("worker-0") for other in others]
        alone = await stream(pair, name="alone", **SEEDED).run("worker-0")
    crowd = [stream(pair, name=f"again-{i}", prompt=PROMPT[i:], **GREEDY) for i in range(1, 5)]
    running = [asyncio.create_task(other.run(f"worker-{i % 2}")) for i, other in enumerate(crowd)]
    moving = stream(pair, **SEEDED)
    task = asyncio.create_task(moving.run("worker-0", stops_after=10))
    await moving.reached.wait()
    await move(pair)
    await moving.arrived.wait()
    back = await move(pair, to="worker-0")
    pace.hurry()
    assert list((await task).values()) == list(alone.values())
    assert moving.places == ["worker-0", "worker-1", "worker-0"]
    assert back.num_blocks < len(PROMPT) // 16, "what it had left behind is not sent again"
    for other, undisturbed in zip(await asyncio.gather(*running), expected, strict=True):
        assert list(other.values()) == list(undisturbed.values())


async def test_a_waiting_request_moves_without_blocks(pair: dict[str, Bench], pace: Pace) -> None:
    crowd = [stream(pair, name=f"first-{i}", prompt=PROMPT[i:], max_tokens=200, **GREEDY) for i in range(8)]
    running = [asyncio.create_task(one.run("worker-0")) for one in crowd]
    await asyncio.gather(*(one.reached.wait() for one in crowd))
    waiting = stream(pair, prompt=[3, 4, 5], **GREEDY)
    task = asyncio.create_task(waiting.run("worker-0"))
    await wait_until_known(pair["worker-0"], "req")
    moved = await move(pair)
    pace.hurry()
    assert (moved.num_blocks, moved.num_sequences) == (0, 1)
    await task
    assert waiting.places == ["worker-0", "worker-1"]
    await asyncio.gather(*running)


async def test_draining_with_a_target_moves_everything_and_is_quick(pair: dict[str, Bench], pace: Pace) -> None:
    names = [f"req-{i}" for i in range(6)]

    def streams() -> list[Stream]:
        return [stream(pair, name=name, prompt=PROMPT[i:], max_tokens=300, **SEEDED) for i, name in enumerate(names)]

    with pace.unhindered():
        expected = await asyncio.gather(*(one.run("worker-0") for one in streams()))
    moving = streams()
    tasks = [asyncio.create_task(one.run("worker-0", stops_after=5)) for one in moving]
    await asyncio.gather(*(one.reached.wait() for one in moving))
    target = worker_pb2.MoveTarget(worker_id="worker-1", endpoint=pair["worker-1"].endpoint)
    drained = await pair["worker-0"].stub.Drain(worker_pb2.DrainRequest(deadline_s=30, targets=[target]))
    assert drained.num_moved == len(names)
    assert drained.num_cancelled == 0
    assert any(not task.done() for task in tasks), "they go on at the target"
    pace.hurry()
    assert await asyncio.gather(*tasks) == expected
    assert all(one.places == ["worker-0", "worker-1"] for one in moving)


async def test_a_target_without_room_leaves_the_request_where_it_is(pair: dict[str, Bench], pace: Pace) -> None:
    crowd = [stream(pair, name=f"other-{i}", prompt=PROMPT[i:], max_tokens=200, **GREEDY) for i in range(8)]
    running = [asyncio.create_task(one.run("worker-1")) for one in crowd]
    await asyncio.gather(*(one.reached.wait() for one in crowd))
    staying = stream(pair, **GREEDY)
    task = asyncio.create_task(staying.run("worker-0"))
    await staying.reached.wait()
    with pytest.raises(grpc.aio.AioRpcError) as fault:
        await move(pair)
    pace.hurry()
    assert fault.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await task
    assert staying.places == ["worker-0"]
    assert len(staying.tokens["req"]) == 120
    await asyncio.gather(*running)


async def test_a_target_that_cannot_be_reached_leaves_it_too(pair: dict[str, Bench], pace: Pace) -> None:
    staying = stream(pair, **GREEDY)
    task = asyncio.create_task(staying.run("worker-0"))
    await staying.reached.wait()
    target = worker_pb2.MoveTarget(worker_id="worker-9", endpoint="127.0.0.1:1")
    with pytest.raises(grpc.aio.AioRpcError) as fault:
        await pair["worker-0"].stub.MoveSequences(worker_pb2.MoveSequencesRequest(request_id="req", target=target))
    pace.hurry()
    assert fault.value.code() is grpc.StatusCode.UNAVAILABLE
    await task
    assert staying.places == ["worker-0"]


async def test_what_has_ended_or_searches_with_beams_does_not_move(pair: dict[str, Bench]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as fault:
        await move(pair, "unknown")
    assert fault.value.code() is grpc.StatusCode.NOT_FOUND
    call = pair["worker-0"].stub.GenerateTokens()
    beam = common_pb2.BeamSearch(width=2, num_hypotheses=1, length_penalty=1.0, early_stopping="false")
    search = worker_pb2.SubmitSequence(
        request_id="search", model="tiny", prompt_token_ids=PROMPT, sampling=sampling(beam=beam, max_tokens=100)
    )
    await call.write(worker_pb2.GenerateTokensRequest(submit=search))
    await call.done_writing()
    await wait_until_known(pair["worker-0"], "search")
    with pytest.raises(grpc.aio.AioRpcError) as fault:
        await move(pair, "search")
    assert fault.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    outputs = [output async for message in call for output in message.outputs]
    assert len(outputs[-1].hypotheses) == 1


async def test_blocks_are_fetched_once_and_shared_by_whoever_asks_next(pair: dict[str, Bench]) -> None:
    """The same that a prefix from elsewhere needs."""
    source, target = pair["worker-0"], pair["worker-1"]
    expected = await stream(pair, name="first", max_tokens=4, **GREEDY).run("worker-0")
    fetched = await fetch(source, target, PROMPT)
    assert fetched.num_blocks == 4
    assert fetched.num_bytes == 4 * target.service.require_generator().engine.runner.blocks.block_bytes
    assert (await fetch(source, target, PROMPT)).num_blocks == 0
    second = stream(pair, name="second", max_tokens=4, **GREEDY)
    assert list((await second.run("worker-1")).values()) == list(expected.values())
    assert second.num_cached == [64]
    await check_integrity(target)


async def test_what_the_source_has_not_is_left_out(pair: dict[str, Bench]) -> None:
    await stream(pair, name="first", max_tokens=4, **GREEDY).run("worker-0")
    fetched = await fetch(pair["worker-0"], pair["worker-1"], [*PROMPT, *range(100, 200)])
    assert fetched.num_blocks == 4


async def test_blocks_beyond_the_room_are_refused(pair: dict[str, Bench]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as fault:
        await fetch(pair["worker-0"], pair["worker-1"], list(range(16 * (NUM_BLOCKS + 1))))
    assert fault.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"block_size": 32}, "block_size is 16 there and 32 here"),
        ({"dtype": "bfloat16"}, "dtype is 'float32' there and 'bfloat16' here"),
        ({"quantization": "int8"}, "quantization is '' there and 'int8' here"),
        ({"enable_prefix_cache": False}, "Blocks are not kept here."),
    ],
    ids=["block size", "dtype", "quantization", "no prefix cache"],
)
async def test_other_layouts_are_refused_and_the_request_is_computed_anew(
    tiny: Path, pace: Pace, fields: dict[str, Any], reason: str
) -> None:
    async with serving("worker-0") as source, serving("worker-1") as target:
        pair = {"worker-0": await load(source, tiny), "worker-1": await load(target, tiny, **fields)}
        moving = stream(pair, **GREEDY)
        task = asyncio.create_task(moving.run("worker-0"))
        await moving.reached.wait()
        moved = await move(pair)
        pace.hurry()
        assert reason in moved.recompute_reason
        assert moved.num_blocks == 0
        assert len((await task)["req"]) == 120
        assert moving.places == ["worker-0", "worker-1"]
        assert moving.num_cached[1] == 0
