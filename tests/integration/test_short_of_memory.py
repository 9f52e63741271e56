"""Processes that get no more memory than they have: what needs it fails alone, and all else is answered."""

import resource
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack, wait_for

BODY = {"model": "tiny", "prompt": "a b c", "max_tokens": 5}
LARGE = BODY | {"prompt": "a b c " * 200_000}
SHORT = ("gateway", "router", "kvcache", "worker-0")
_SPARE_BYTES = 1 << 20


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[RunningStack]:
    models = {"tiny": write_model(tmp_path / "model")}
    running = RunningStack(tmp_path / "state", models, "--emulate", "2xV100", "--no-profile").start()
    yield running
    running.stop()


def give_no_more(pid: int) -> None:
    num_bytes = psutil.Process(pid).memory_info().vms + _SPARE_BYTES
    resource.prlimit(pid, resource.RLIMIT_AS, (num_bytes, num_bytes))


def test_what_needs_more_memory_than_there_is_fails_alone(stack: RunningStack) -> None:
    def ask(body: dict[str, Any]) -> int:
        try:
            return httpx.post(f"{stack.url}/v1/completions", json=body, timeout=60).status_code
        except httpx.TransportError:
            return 0  # the connection ended: not even the request could be taken

    def answers(*bodies: dict[str, Any]) -> Counter[int]:
        with ThreadPoolExecutor(len(bodies)) as pool:
            return Counter(pool.map(ask, bodies))

    answers(*[BODY] * 12)
    pids = {name: stack.pid(name) for name in SHORT}
    for pid in pids.values():
        give_no_more(pid)
    with ThreadPoolExecutor(2) as pool:
        small, large = pool.map(lambda body: answers(*[body] * 12), (BODY, LARGE))
    assert small == {200: 12}
    assert set(large) <= {0, 400, 503}, "too long as it is, or there is no memory to find that out"
    assert answers(*[BODY] * 12) == {200: 12}
    wait_for(lambda: stack.status()["controller"]["ready"], timeout_s=60)
    assert {name: stack.pid(name) for name in SHORT} == pids, "nobody ended"
