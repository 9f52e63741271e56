"""Threads of a gateway, for what takes long: no tenant keeps others from them."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from headway.gateway.threads import Threads


class Gate:
    """Work that lasts until it is let go; `begun` has the names of what has begun, in order."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._is_open = threading.Event()

    def work(self, name: str) -> Callable[[], str]:
        def run() -> str:
            self.begun.append(name)
            assert self._is_open.wait(60)
            return name

        return run

    def open(self) -> None:
        self._is_open.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


def start(threads: Threads, gate: Gate, name: str) -> asyncio.Task[str]:
    """Work of the tenant by whose name it is called."""
    return asyncio.create_task(threads.run(gate.work(name), is_long=True, tenant=name[0]))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - of other threads
            await asyncio.sleep(0.005)


async def test_a_tenant_whose_work_takes_long_leaves_a_thread_to_others(gate: Gate) -> None:
    threads = Threads()
    tasks = [start(threads, gate, name) for name in ("a0", "a1", "a2", "a3")]
    await until(lambda: len(gate.begun) == 2)
    assert await threads.run(lambda: "done", is_long=True, tenant="b") == "done"
    assert gate.begun == ["a0", "a1"]
    gate.open()
    assert await asyncio.gather(*tasks) == ["a0", "a1", "a2", "a3"]


async def test_who_has_had_the_threads_for_less_time_is_next(gate: Gate) -> None:
    threads = Threads()
    tasks = [start(threads, gate, name) for name in ("a0", "a1", "a2", "a3", "c0")]
    await until(lambda: len(gate.begun) == 3)
    tasks.append(start(threads, gate, "b0"))
    await asyncio.sleep(0.1)  # the others have had them meanwhile
    gate.open()
    await asyncio.gather(*tasks)
    assert sorted(gate.begun[:3]) == ["a0", "a1", "c0"]
    assert gate.begun[3] == "b0"


async def test_a_client_that_leaves_keeps_a_thread_until_its_work_is_done_and_a_place_no_longer(gate: Gate) -> None:
    threads = Threads()
    running = [start(threads, gate, name) for name in ("a0", "a1", "b0")]
    await until(lambda: len(gate.begun) == 3)
    waiting = start(threads, gate, "a2")
    last = start(threads, gate, "a3")
    await asyncio.sleep(0)
    for task in (running[0], waiting):
        task.cancel()
    await asyncio.gather(running[0], waiting, return_exceptions=True)
    assert len(gate.begun) == 3
    gate.open()
    assert await last == "a3"
    assert sorted(gate.begun) == ["a0", "a1", "a3", "b0"]
