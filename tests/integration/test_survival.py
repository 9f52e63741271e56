"""What happens when processes die, clients leave, and everybody comes at once."""

import asyncio
import json
import os
import signal
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import httpx
import pytest

from headway.v1 import worker_pb2, worker_pb2_grpc
from tests.integration.stack import RunningStack, wait_for


def ask(stack: RunningStack, prompt: str = "trains run", max_tokens: int = 8, **fields: Any) -> httpx.Response:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    return httpx.post(f"{stack.url}/v1/completions", json=body | fields, timeout=60)


def worker(stack: RunningStack, endpoint: str) -> worker_pb2.GetWorkerResponse:
    """What a worker says of itself, asked directly."""
    with grpc.insecure_channel(endpoint) as channel:
        return worker_pb2_grpc.WorkerServiceStub(channel).GetWorker(
            worker_pb2.GetWorkerRequest(), timeout=10, metadata=stack.metadata
        )


def load(stack: RunningStack, endpoint: str) -> worker_pb2.WatchLoadResponse:
    """A worker's load at this moment."""
    with grpc.insecure_channel(endpoint) as channel:
        request = worker_pb2.WatchLoadRequest(interval_ms=50)
        stream = worker_pb2_grpc.WorkerServiceStub(channel).WatchLoad(request, metadata=stack.metadata)
        report = next(iter(stream))
        stream.cancel()
        return report


async def stream_text(url: str, body: dict[str, object]) -> str:
    """The text of one streamed completion; raises on an error event or a broken stream."""
    text, done = "", False
    async with (
        httpx.AsyncClient(timeout=120) as client,
        client.stream("POST", f"{url}/v1/completions", json=body | {"stream": True}) as response,
    ):
        assert response.status_code == 200, (await response.aread()).decode()
        async for line in response.aiter_lines():
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                assert "error" not in event, event
                text += event["choices"][0]["text"]
    assert done, "the stream ended without [DONE]"
    return text


async def test_200_concurrent_streams_finish_and_leave_nothing_behind(stack: RunningStack) -> None:
    body = {"model": "tiny", "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    prompts = [f"stream number {i} runs " * (1 + i % 7) for i in range(200)]
    texts = await asyncio.gather(*(stream_text(stack.url, body | {"prompt": prompt}) for prompt in prompts))
    assert len(texts) == 200
    alone = ask(stack, prompts[17], 24).json()["choices"][0]["text"]
    assert texts[17] == alone
    endpoint = stack.endpoint("worker-0")
    wait_for(lambda: load(stack, endpoint).num_running == 0)
    report = load(stack, endpoint)
    assert report.num_free_blocks == report.num_blocks
    fleet = stack.status()["fleet"]
    assert int(fleet.get("num_in_flight", 0)) == 0


def test_a_client_that_leaves_stops_the_worker_and_frees_its_blocks(stack: RunningStack) -> None:
    """While the worker stands still the client reads all that it has sent, and leaves. A step whose tokens were not
    sent yet may be over by then, one is under way, and one more follows at most.
    """
    stack.wait_until_ready()
    endpoint, pid = stack.endpoint("worker-0"), stack.pid("worker-0")
    num_before, num_tokens = worker(stack, endpoint).num_steps, 0
    body = {"model": "tiny", "prompt": "go on", "max_tokens": 900, "ignore_eos": True, "stream": True, "n": 64}
    body |= {"return_token_ids": True}
    timeout = httpx.Timeout(30, read=1)
    with httpx.stream("POST", f"{stack.url}/v1/completions", json=body, timeout=timeout) as response:
        lines = response.iter_lines()
        for _ in range(6):
            num_tokens += num_tokens_of_first(next(lines))
        assert load(stack, endpoint).num_running == 64
        os.kill(pid, signal.SIGSTOP)
        rest = deque[str]()
        with pytest.raises(httpx.ReadTimeout):
            rest.extend(lines)
        num_tokens += sum(map(num_tokens_of_first, rest))
    wait_for(lambda: int(stack.status()["fleet"].get("num_in_flight", 0)) == 0)
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: load(stack, endpoint).num_running == 0)
    report, num_steps = load(stack, endpoint), worker(stack, endpoint).num_steps
    assert num_steps - num_before <= num_tokens + 3
    assert report.num_free_blocks == report.num_blocks


def num_tokens_of_first(line: str) -> int:
    """Tokens that an event of a stream brings of the first sample."""
    if not line.startswith("data: {"):
        return 0
    choices = json.loads(line.removeprefix("data: "))["choices"]
    return sum(len(choice.get("token_ids") or ()) for choice in choices if choice["index"] == 0)


@pytest.mark.parametrize("name", ["router", "kvcache", "gateway", "planner", "profiler", "worker-0"])
def test_kill_9_is_survived(stack: RunningStack, name: str) -> None:
    """The rest keep serving, or refuse for the moment; the process comes back; the next request succeeds."""
    stack.wait_until_ready()
    killed = stack.kill(name)
    try:
        response = ask(stack)
        assert response.status_code in (200, 503), response.text
        assert response.status_code == 200 or response.headers["retry-after"] == "1", response.text
    except httpx.TransportError:
        assert name == "gateway"
    stack.wait_until_ready()
    wait_for(lambda: _is_back(stack, name, killed))
    wait_for(lambda: ask(stack).status_code == 200)
    assert ask(stack).status_code == 200


async def test_a_stuck_router_is_noticed_and_goes_on_without_a_lost_lease(stack: RunningStack) -> None:
    """Who asks for a place meanwhile hears so at once; who has one goes on; afterwards nobody is thought to run."""
    stack.wait_until_ready()
    router, body = stack.pid("router"), {"model": "tiny", "prompt": "go on", "max_tokens": 900, "ignore_eos": True}
    endpoint = stack.endpoint("worker-0")
    await asyncio.to_thread(wait_for, lambda: load(stack, endpoint).num_running == 0)  # of the tests before
    running = asyncio.create_task(stream_text(stack.url, body))
    await asyncio.to_thread(wait_for, lambda: load(stack, endpoint).num_running == 1)
    os.kill(router, signal.SIGSTOP)
    try:
        async with httpx.AsyncClient(timeout=5) as client:  # sooner than the stream to the router breaks
            asked = [client.post(f"{stack.url}/v1/completions", json=body) for _ in range(8)]
            refused = await asyncio.gather(*asked)
    finally:
        os.kill(router, signal.SIGCONT)
    assert [response.status_code for response in refused] == [503] * 8
    assert {response.headers["retry-after"] for response in refused} == {"1"}
    assert "The router does not answer" in refused[0].json()["error"]["message"]
    assert await running
    await asyncio.to_thread(wait_for, lambda: ask(stack).status_code == 200)
    assert stack.pid("router") == router
    await asyncio.to_thread(wait_for, lambda: not int(stack.status()["fleet"].get("num_in_flight", 0)))
    assert load(stack, endpoint).num_running == 0


def _is_back(stack: RunningStack, name: str, killed: int) -> bool:
    processes = stack.status()["controller"]["processes"]
    return any(p["name"] == name and p["pid"] != killed and p["state"] == "ready" for p in processes)


def test_a_dead_controller_is_replaced_and_nothing_else_notices(stack: RunningStack) -> None:
    before = _pids_of_others(stack)
    controller = stack.stack.controller
    assert controller is not None
    os.kill(controller.pid, signal.SIGKILL)
    assert ask(stack).status_code == 200
    wait_for(lambda: stack.headway("status", "--json").returncode == 0)
    wait_for(lambda: len(_pids_of_others(stack)) == len(before))
    assert _pids_of_others(stack) == before


def _pids_of_others(stack: RunningStack) -> dict[str, int]:
    processes = stack.status()["controller"]["processes"]
    return {process["name"]: process["pid"] for process in processes if process["name"] != "controller"}


def kill_busy_worker(stack: RunningStack, endpoints: dict[str, int]) -> None:
    """Kills the worker that runs more sequences, once one runs any. `endpoints`: the process at each of them."""
    num_running = dict.fromkeys(endpoints, 0)

    def is_any_busy() -> bool:
        num_running.update({endpoint: load(stack, endpoint).num_running for endpoint in endpoints})
        return any(num_running.values())

    wait_for(is_any_busy, every_s=0.01)
    os.kill(endpoints[max(num_running, key=num_running.__getitem__)], signal.SIGKILL)


def worker_processes(pair: RunningStack) -> dict[str, int]:
    """The process at each worker's endpoint, once both have one."""
    names = ("worker-0", "worker-1")
    wait_for(lambda: all(pair.endpoint(name) for name in names), every_s=0.5)
    return {pair.endpoint(name): pair.pid(name) for name in names}


async def test_a_stream_goes_on_when_its_worker_dies(pair: RunningStack) -> None:
    """Two workers: the text is the same as if nothing had happened, for every stream that was running."""
    body = {"model": "tiny", "max_tokens": 400, "temperature": 0, "ignore_eos": True}
    prompts = [f"line {i} goes" for i in range(8)]
    expected = await asyncio.gather(*(stream_text(pair.url, body | {"prompt": prompt}) for prompt in prompts))
    endpoints = worker_processes(pair)
    kill = asyncio.create_task(asyncio.to_thread(kill_busy_worker, pair, endpoints))
    while not kill.done():  # on a busy machine streams may have ended before it has seen them
        answers = await asyncio.gather(*(stream_text(pair.url, body | {"prompt": prompt}) for prompt in prompts))
        assert answers == expected
    await kill


def test_sampled_streams_survive_too(pair: RunningStack) -> None:
    pair.wait_until_ready()
    fields = {"temperature": 0.9, "seed": 4, "max_tokens": 400, "ignore_eos": True}
    expected = ask(pair, **fields).json()["choices"][0]["text"]
    endpoints = worker_processes(pair)
    with ThreadPoolExecutor(5) as pool:
        kill = pool.submit(kill_busy_worker, pair, endpoints)
        while not kill.done():
            answers = [pool.submit(ask, pair, **fields) for _ in range(4)]
            assert [answer.result().json()["choices"][0]["text"] for answer in answers] == [expected] * 4
        kill.result()
