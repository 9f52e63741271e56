"""Prompts that one worker computes for another one, and prefixes that it fetches: two workers in this process."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from headway.core.request import SequenceOutput
from headway.engine.engine import Engine
from headway.v1 import worker_pb2
from headway.worker.transfer.block import BlockContent
from headway.worker.transfer.local import LocalBlocks
from headway.worker.transfer.rate import FetchRate
from tests.worker.conftest import Bench, load, serving
from tests.worker.streams import GREEDY, SEEDED, Stream, check_integrity, stream

LONG = [7 + i * 13 % 400 for i in range(300)]
Pair = dict[str, Bench]


@pytest.fixture(autouse=True)
def slow_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Engine.step

    def slow_step(engine: Engine) -> list[SequenceOutput]:
        time.sleep(0.004)
        return step(engine)

    monkeypatch.setattr(Engine, "step", slow_step)


@pytest.fixture
def slow_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hands a block out in time."""

    async def read(*_: object, **__: object) -> AsyncIterator[list[BlockContent]]:
        await asyncio.sleep(30)
        yield []

    monkeypatch.setattr(LocalBlocks, "read", read)


@pytest.fixture
async def pair(tiny: Path) -> AsyncIterator[Pair]:
    """worker-1 runs two sequences at once."""
    async with AsyncExitStack() as stack:
        first = await load(await stack.enter_async_context(serving("worker-0")), tiny)
        second = await load(await stack.enter_async_context(serving("worker-1")), tiny, max_num_seqs=2)
        yield {"worker-0": first, "worker-1": second}


def to_decode(pair: Pair, *, endpoint: str = "") -> dict[str, Any]:
    target = worker_pb2.MoveTarget(worker_id="worker-1", endpoint=endpoint or pair["worker-1"].endpoint)
    return {"decode_target": target}


def from_holder(pair: Pair, *, num_blocks: int, endpoint: str = "", timeout_s: float = 10.0) -> dict[str, Any]:
    source = worker_pb2.PrefixSource(
        worker_id="worker-0",
        endpoint=endpoint or pair["worker-0"].endpoint,
        num_blocks=num_blocks,
        timeout_s=timeout_s,
    )
    return {"prefix_source": source}


def long_stream(pair: Pair, *, name: str = "req", n: int = 1, others: dict[str, Any], **fields: Any) -> Stream:
    found = stream(pair, name=name, n=n, prompt=LONG, **fields)
    found.others = others
    return found


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"headway:{name}_total", {"model_name": "tiny", **labels}) or 0.0


async def alone(pair: Pair, *, n: int = 1, **fields: Any) -> list[list[int]]:
    """From a worker that is used for nothing else."""
    async with serving("worker-2") as bench:
        other = {"worker-2": await load(bench, Path(pair["worker-0"].service.require_generator().order.directory))}
        return list((await stream(other, n=n, prompt=LONG, **fields).run("worker-2")).values())


@pytest.mark.parametrize(
    ("n", "fields"), [(1, GREEDY), (1, SEEDED), (2, SEEDED)], ids=["greedy", "seeded", "two samples"]
)
async def test_sequences_go_on_where_they_are_to_be_decoded(pair: Pair, n: int, fields: dict[str, Any]) -> None:
    handed = long_stream(pair, n=n, others=to_decode(pair), **fields)
    tokens = await handed.run("worker-0")
    assert list(tokens.values()) == await alone(pair, n=n, **fields)
    assert handed.places == ["worker-0", "worker-1"]
    assert handed.num_cached[1] >= len(LONG) // 16 * 16, "its prompt is not computed there"
    for bench in pair.values():
        await check_integrity(bench)


async def test_so_do_those_whose_steps_overlap(overlapped_steps: None, pair: Pair) -> None:
    assert pair["worker-0"].service.require_generator().engine.runner.runs_ahead
    await test_sequences_go_on_where_they_are_to_be_decoded(pair, 1, GREEDY)


async def test_a_prompt_that_the_decode_worker_holds_is_not_sent(pair: Pair) -> None:
    await stream(pair, name="before", prompt=LONG, max_tokens=1, **GREEDY).run("worker-1")
    before = metric("kv_transfer_blocks", direction="in")
    handed = long_stream(pair, others=to_decode(pair), **GREEDY)
    await handed.run("worker-0")
    assert handed.places == ["worker-0", "worker-1"]
    assert metric("kv_transfer_blocks", direction="in") - before <= 2


async def test_a_decode_worker_that_is_gone_or_full_leaves_them_where_they_are(pair: Pair) -> None:
    expected = await alone(pair, **GREEDY)
    lost = long_stream(pair, others=to_decode(pair, endpoint="127.0.0.1:1"), **GREEDY)
    assert list((await lost.run("worker-0")).values()) == expected
    assert lost.places == ["worker-0"]
    crowd = [stream(pair, name=f"crowd-{i}", max_tokens=250, **GREEDY) for i in range(2)]
    running = [asyncio.create_task(one.run("worker-1")) for one in crowd]
    await asyncio.gather(*(one.reached.wait() for one in crowd))
    kept = long_stream(pair, name="kept", others=to_decode(pair), **GREEDY, max_tokens=60)
    assert next(iter((await kept.run("worker-0")).values())) == expected[0][:60]
    assert kept.places == ["worker-0"]
    await asyncio.gather(*running)


async def test_a_decode_worker_that_was_full_takes_them_later(pair: Pair) -> None:
    crowd = [stream(pair, name=f"crowd-{i}", max_tokens=60, **GREEDY) for i in range(2)]
    running = [asyncio.create_task(one.run("worker-1")) for one in crowd]
    await asyncio.gather(*(one.reached.wait() for one in crowd))
    late = long_stream(pair, others=to_decode(pair), **GREEDY, max_tokens=200)
    await late.run("worker-0")
    assert late.places == ["worker-0", "worker-1"]
    await asyncio.gather(*running)


async def test_prompts_that_begin_alike_fetch_what_another_worker_holds_once(pair: Pair) -> None:
    expected = await alone(pair, **GREEDY)
    await stream(pair, name="before", prompt=LONG, max_tokens=1, **GREEDY).run("worker-0")
    before = {name: metric(name) for name in ("prefix_fetched_tokens",)}
    blocks = metric("kv_transfer_blocks", direction="in")
    streams = [long_stream(pair, name=f"r{i}", others=from_holder(pair, num_blocks=18), **GREEDY) for i in range(3)]
    for tokens in await asyncio.gather(*(one.run("worker-1") for one in streams)):
        assert list(tokens.values()) == expected
    assert metric("kv_transfer_blocks", direction="in") - blocks == 18
    assert metric("prefix_fetched_tokens") - before["prefix_fetched_tokens"] == 18 * 16
    assert all(one.num_cached[0] == 18 * 16 for one in streams)


@pytest.mark.parametrize("outcome", ["failed", "late"])
async def test_a_prefix_that_cannot_be_had_is_computed(pair: Pair, slow_reads: None, outcome: str) -> None:
    endpoint = "" if outcome == "late" else "127.0.0.1:1"
    before = metric("prefix_fetches", outcome=outcome)
    others = from_holder(pair, num_blocks=18, endpoint=endpoint, timeout_s=0.3)
    computed = long_stream(pair, others=others, **GREEDY, max_tokens=20)
    (tokens,) = (await computed.run("worker-1")).values()
    assert tokens == (await alone(pair, **GREEDY))[0][:20]
    assert metric("prefix_fetches", outcome=outcome) == before + 1


async def test_a_request_that_is_cancelled_while_its_prefix_comes_never_sets_out(pair: Pair, slow_reads: None) -> None:
    others = from_holder(pair, num_blocks=18, timeout_s=0.5)
    task = asyncio.create_task(long_stream(pair, others=others, **GREEDY).run("worker-1"))
    sessions = pair["worker-1"].service.require_generator().sessions
    while sessions.is_idle:  # noqa: ASYNC110 - the service has no such event
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(sessions.wait_until_idle(), 5)
    await asyncio.sleep(0.6)
    assert pair["worker-1"].service.require_generator().stats.num_prefill_tokens == 0
    await check_integrity(pair["worker-1"])


def test_the_rate_is_a_mean_of_large_fetches_and_is_forgotten() -> None:
    now_s = 0.0
    rate = FetchRate(lambda: now_s)
    rate.observe(1000, seconds=1.0)
    assert rate.bytes_per_s == 0.0
    rate.observe(1 << 20, seconds=0.5)
    assert rate.bytes_per_s == 2 << 20
    rate.observe(1 << 20, seconds=1.0)
    assert 1 << 20 < rate.bytes_per_s < 2 << 20
    now_s = 61.0
    assert rate.bytes_per_s == 0.0
