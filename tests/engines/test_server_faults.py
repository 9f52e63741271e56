"""Servers that are not what they have to be, or no longer: what a worker says of them."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from headway.core.engine_kind import EngineKind
from headway.core.engine_server import API_KEY
from headway.core.errors import HeadwayError
from headway.rpc.status import error_from_rpc
from headway.worker.hardware import server_hardware
from headway.worker.step_watch import StepWatch
from headway.worker.vllm_server.server import check_serves, describe_server
from tests.engines.token_server import TokenServer, token_server
from tests.engines.worker import Answer, EngineWorker, load, sequence, take
from tests.worker.conftest import Bench, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

GREEDY = {"temperature": 0.0}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inner(tiny: Path) -> AsyncIterator[EngineWorker]:
    """What computes for the servers."""
    async with serving("worker-9") as bench:
        await load(bench.stub, tiny, model="inner")
        yield EngineWorker(EngineKind.HEADWAY, bench.stub)


@asynccontextmanager
async def standing_in(server: TokenServer) -> AsyncIterator[Bench]:
    described = await describe_server(server.url, model="tiny")
    hardware = server_hardware(described.served, version=described.version)
    async with serving(hardware=hardware) as bench:
        yield bench


async def answer_of(worker: EngineWorker, *, on_fifth_token: Callable[[], None]) -> Answer:
    """What comes of a long answer during which that happens."""
    asked = sequence(max_tokens=400, **GREEDY)
    answer, has_happened = Answer(), False
    async with worker.stream(asked) as call, asyncio.timeout(60):
        await call.done_writing()
        async for message in call:
            take(message, {asked.request_id: answer})
            if len(answer.tokens) >= 5 and not has_happened:
                on_fifth_token()
                has_happened = True
    return answer


@pytest.mark.parametrize(
    ("fields", "words", "hint"),
    [
        ({"version": "0.31.2"}, r"is vLLM 0\.31\.2, and Headway speaks to 0\.32", r"vllm==0\.32\.0"),
        ({"has_generate": False}, "has no /inference/v1/generate", "--enable-scale-out"),
        ({"api_key": "secret"}, "asks for a key", API_KEY),
        ({"names": ("chat", "/models/big")}, "serves chat or /models/big, not 'tiny'", "--model chat=/somewhere/small"),
    ],
)
async def test_a_server_that_does_not_fit_is_told_why(
    inner: EngineWorker, fields: dict[str, Any], words: str, hint: str
) -> None:
    async with token_server(TokenServer(inner, "inner", **fields)) as server:
        with pytest.raises(HeadwayError, match=words) as refused:
            check_serves((await describe_server(server.url, model="tiny")).served, directory="/somewhere/small")
    assert hint.replace("\\", "") in refused.value.hint
    assert refused.value.field == "--engine-url"


async def test_a_server_is_the_models_by_its_name_or_its_directory(
    inner: EngineWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(API_KEY, "secret")
    async with token_server(TokenServer(inner, "inner", names=("x", "/there/small"), api_key="secret")) as server:
        served = (await describe_server(server.url, model="tiny")).served
    check_serves(served, directory="/here/small")
    check_serves(replace(served, model="x"), directory="/here/other")
    assert (served.num_blocks, served.block_size, served.max_model_len) == (32, 32, 512)


async def test_a_server_that_is_not_there_is_named_by_the_check_of_the_command_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    command = [sys.executable, "-m", "headway.worker.vllm_server", url, "tiny", "/models/tiny"]
    asked = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    message, hint = asked.stderr.strip().splitlines()
    assert asked.returncode == 1
    assert message.startswith(f"The vLLM server at {url} does not answer: ")
    assert hint == "Start it, or correct the URL."


async def test_a_url_of_another_kind_is_refused() -> None:
    with pytest.raises(HeadwayError, match="is no address of a server"):
        await describe_server("tcp://127.0.0.1:5557", model="tiny")


async def test_a_plan_for_other_blocks_is_refused_by_name(inner: EngineWorker, tiny: Path) -> None:
    async with token_server(TokenServer(inner, "inner")) as server, standing_in(server) as bench:
        for fields, word in (({"num_blocks": 64}, "num_blocks"), ({"block_size": 16}, "block_size")):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await load(bench.stub, tiny, engine="vllm-server", **fields)
            error = error_from_rpc(refused.value)
            assert (error.field, f"has {word}" in error.message) == (word, True)


async def test_a_server_that_dies_ends_its_streams_and_its_worker(inner: EngineWorker, tiny: Path) -> None:
    async with token_server(TokenServer(inner, "inner")) as server, standing_in(server) as bench:
        await load(bench.stub, tiny, engine="vllm-server")
        worker = EngineWorker(EngineKind.VLLM_SERVER, bench.stub)
        error = (await answer_of(worker, on_fifth_token=server.die)).error
        assert error is not None
        assert error.code == "unavailable", "which has the gateway go on elsewhere"
        assert "crashed" in bench.states
    await inner.until_idle()


async def test_a_stream_that_breaks_is_refused_where_the_server_lives(inner: EngineWorker, tiny: Path) -> None:
    async with token_server(TokenServer(inner, "inner")) as server, standing_in(server) as bench:
        await load(bench.stub, tiny, engine="vllm-server")
        worker = EngineWorker(EngineKind.VLLM_SERVER, bench.stub)
        error = (await answer_of(worker, on_fifth_token=server.break_off)).error
        assert error is not None
        assert error.code == "unavailable"
        assert "crashed" not in bench.states
        (after,) = await worker.generate(sequence(max_tokens=3, **GREEDY))
        assert len(after.tokens) == 3


async def test_a_server_that_hangs_in_a_step_ends_its_worker(
    inner: EngineWorker, tiny: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with token_server(TokenServer(inner, "inner")) as server, standing_in(server) as bench:
        await load(bench.stub, tiny, engine="vllm-server", step_timeout_s=0.5)
        stuck = asyncio.Event()
        watching = asyncio.create_task(StepWatch(bench.service.replicas, on_stuck=stuck.set, look_every_s=0.02).watch())
        worker = EngineWorker(EngineKind.VLLM_SERVER, bench.stub)
        (answer,) = await worker.generate(sequence(max_tokens=3, **GREEDY))
        assert len(answer.tokens) == 3
        assert not stuck.is_set()
        server.is_stuck = True
        async with worker.stream(sequence(**GREEDY)), asyncio.timeout(60):
            await stuck.wait()
        await watching
    assert "a step of tiny has taken over 0.5 s" in caplog.text


async def test_a_request_that_waits_for_others_at_the_server_is_in_no_step_that_never_ends(
    inner: EngineWorker, tiny: Path
) -> None:
    async with token_server(TokenServer(inner, "inner", is_stuck=True)) as server, standing_in(server) as bench:
        await load(bench.stub, tiny, engine="vllm-server")
        (replica,) = bench.service.replicas
        assert replica.stepping is not None
        step = lambda: replica.stepping.running_step  # noqa: E731
        assert step() == 0
        async with EngineWorker(EngineKind.VLLM_SERVER, bench.stub).stream(sequence(**GREEDY)):
            await until(lambda: step() != 0)
            for _ in range(2):
                before = step()
                other = sequence(max_tokens=3, **GREEDY)
                other.model = "inner"
                await inner.generate(other)
                await until(lambda before=before: step() != before)
        await until(lambda: step() == 0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.005)
