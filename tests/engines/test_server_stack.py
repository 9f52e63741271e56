"""A stack before two servers that run already: where one dies, a stream goes on at the other."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from headway.core.engine_kind import EngineKind
from tests.engines.token_server import TokenServer, token_server
from tests.engines.worker import EngineWorker, load
from tests.integration.stack import RunningStack
from tests.worker.conftest import serving

_PROMPT = "the headway between two trains " * 8


@contextmanager
def two_servers(tiny: Path) -> Iterator[tuple[TokenServer, TokenServer]]:
    """In a thread with an event loop; both of one worker."""
    loop = asyncio.new_event_loop()
    running: list[tuple[TokenServer, TokenServer]] = []
    is_running, is_over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with serving("worker-9") as bench:
            await load(bench.stub, tiny, model="inner", max_num_seqs=16, num_blocks=128)
            worker = EngineWorker(EngineKind.HEADWAY, bench.stub)
            async with (
                token_server(TokenServer(worker, "inner")) as one,
                token_server(TokenServer(worker, "inner")) as other,
            ):
                running.append((one, other))
                is_running.set()
                await is_over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert is_running.wait(60)
        yield running[0]
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def servers(tiny: Path) -> Iterator[tuple[TokenServer, TokenServer]]:
    with two_servers(tiny) as both:
        yield both


@pytest.fixture(scope="module")
def stack(
    servers: tuple[TokenServer, TokenServer], tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningStack]:
    urls = [option for server in servers for option in ("--engine-url", server.url)]
    options = ("--engine", "vllm-server", *urls, "--dtype", "float32")
    running = RunningStack(tmp_path_factory.mktemp("stack"), {"tiny": tiny}, *options).start()
    yield running
    running.stop()


def text_of(lines: list[str]) -> str:
    """Of a stream's events."""
    events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ") and line != "data: [DONE]"]
    return "".join(json.loads(event)["choices"][0]["text"] for event in events)


def test_the_stack_takes_the_servers_as_they_are(stack: RunningStack, servers: tuple[TokenServer, TokenServer]) -> None:
    shown = " ".join(stack.headway("status").stdout.split())
    for server in servers:
        assert f"vllm-server 0.32.0 at {server.url}" in shown
    assignments = stack.status()["plan"]["assignments"]
    assert [(each["num_blocks"], each["block_size"], each["max_model_len"]) for each in assignments] == [
        (128, 32, 512)
    ] * 2


def test_a_greedy_stream_survives_its_server_token_for_token(
    stack: RunningStack, servers: tuple[TokenServer, TokenServer]
) -> None:
    asked = {"model": "tiny", "prompt": _PROMPT, "max_tokens": 200, "temperature": 0, "ignore_eos": True}
    whole = httpx.post(f"{stack.url}/v1/completions", json=asked, timeout=60).json()["choices"][0]["text"]
    before = [len(server.bodies) for server in servers]
    lines: list[str] = []
    victim: TokenServer | None = None
    with httpx.stream("POST", f"{stack.url}/v1/completions", json=asked | {"stream": True}, timeout=60) as response:
        for line in response.iter_lines():
            lines.append(line)
            if len(lines) == 20:
                victim = next(s for s, number in zip(servers, before, strict=True) if len(s.bodies) > number)
                victim.die()
    assert victim is not None
    assert text_of(lines) == whole
    after = httpx.post(f"{stack.url}/v1/completions", json=asked, timeout=60)
    assert after.json()["choices"][0]["text"] == whole, "the other serves alone"
