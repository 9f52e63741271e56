"""Who is next in a whole stack: what the request says reaches the queue of the worker."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.conftest import OPTIONS
from tests.integration.stack import RunningStack, wait_for

NUM_PATIENT = 40


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Iterator[RunningStack]:
    """One worker, whose batches hold two sequences: the router sends it all of them at once."""
    options = (*OPTIONS, "--max-num-seqs", "2", "--queue-policy", "priority")
    running = RunningStack(tmp_path_factory.mktemp("priority"), {"tiny": checkpoint}, *options).start()
    yield running
    running.stop()


async def test_an_urgent_request_overtakes_those_that_wait_in_the_worker(stack: RunningStack) -> None:
    ended: list[int] = []

    async def ask(client: httpx.AsyncClient, priority: int) -> None:
        body = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 96, "ignore_eos": True, "priority": priority}
        answer = await client.post(f"{stack.url}/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        ended.append(priority)

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client, asyncio.TaskGroup() as group:
        for _ in range(NUM_PATIENT):
            group.create_task(ask(client, 10))
        waiting = "headway:num_requests_waiting"
        await asyncio.to_thread(wait_for, lambda: stack.metric(waiting, of="worker-0") > NUM_PATIENT / 2)
        group.create_task(ask(client, -100))
    assert len(ended) == NUM_PATIENT + 1
    num_behind = len(ended) - 1 - ended.index(-100)
    assert num_behind > NUM_PATIENT / 4, "it waited for most of those that waited when it came"
