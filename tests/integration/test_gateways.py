"""Two gateways at one address: one is killed under load, and nobody who connects is turned away."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from headway.client import Client
from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack, wait_for
from tests.liveness import is_alive

BODY = {"model": "tiny", "prompt": "the headway between two trains", "max_tokens": 8}
NUM_CLIENTS = 4


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[RunningStack]:
    models = {"tiny": write_model(tmp_path / "model")}
    running = RunningStack(tmp_path / "state", models, "--emulate", "1xV100", "--gateways", "2").start()
    yield running
    running.stop()


def ask(stack: RunningStack, results: list[tuple[float, int | str]], is_over: threading.Event) -> None:
    """Each time by a new connection; notes when it began and what came of it."""
    url = f"{stack.url}/v1/completions"
    while not is_over.is_set():
        began_s = time.monotonic()
        try:
            results.append((began_s, httpx.post(url, json=BODY, timeout=60).status_code))
        except httpx.TransportError as error:
            results.append((began_s, type(error).__name__))


def test_who_connects_while_a_gateway_is_dead_is_answered_by_the_other(pair: RunningStack) -> None:
    results: list[tuple[float, int | str]] = []
    is_over = threading.Event()
    gateways = [each["name"] for each in pair.status()["controller"]["processes"] if each["kind"] == "gateway"]
    assert gateways == ["gateway-0", "gateway-1"]
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(NUM_CLIENTS))
        stack.callback(is_over.set)  # before the pool waits for them
        for _ in range(NUM_CLIENTS):
            pool.submit(ask, pair, results, is_over)
        wait_for(lambda: len(results) > 10)
        wait_for(lambda: all(pair.metric("headway:http_requests_total", of=name) for name in gateways))
        killed = pair.kill("gateway-0")
        wait_for(lambda: not is_alive(killed))
        killed_s = time.monotonic()
        num_before = len(results)
        wait_for(lambda: len(results) > num_before + 20, timeout_s=60)
        wait_for(lambda: pair.status()["controller"]["ready"], timeout_s=60)
    assert {result for began_s, result in results if began_s > killed_s} == {200}
    assert [result for began_s, result in results if result != 200].count("ConnectError") == 0
    with Client(pair.stack.grpc_endpoint) as client:
        assert [model.name for model in client.models()] == ["tiny"]
