"""An engine's thread when its runner is gone, or the engine itself is broken."""

import asyncio
from typing import Any

import pytest

from headway.core.errors import UnavailableError
from headway.engine.batch import RunnerLostError
from headway.runner.device_lock import FairDeviceLock
from headway.worker.engine_thread import EngineThread


class LostEngine:
    """Has work that cannot be done."""

    def __init__(self, *, has_work: bool) -> None:
        self.has_work = has_work
        self.failed: list[str] = []
        self.pause_s = self.waiting_since_s = 0.0
        self.num_failures = 0

    def step(self) -> list[Any]:
        raise RunnerLostError("rank 1 is gone")

    def recover(self, error: str) -> list[Any]:
        self.failed.append(error)
        return []

    def stats(self) -> Any:
        return None


class Listener:
    def __init__(self) -> None:
        self.crashed = asyncio.Event()
        self.num_steps = 0

    def on_step(self, outputs: list[Any], stats: Any) -> None:
        self.num_steps += 1

    def on_idle(self, stats: Any) -> None:
        pass

    def on_crash(self) -> None:
        self.crashed.set()


def start(engine: LostEngine) -> tuple[EngineThread[LostEngine], Listener]:
    listener = Listener()
    thread = EngineThread(engine, listener=listener, device_lock=FairDeviceLock(), loop=asyncio.get_running_loop())
    thread.start()
    return thread, listener


async def test_a_lost_runner_ends_the_thread_and_no_request() -> None:
    engine = LostEngine(has_work=True)
    thread, listener = start(engine)
    await asyncio.wait_for(listener.crashed.wait(), 5)
    await thread.join()
    assert engine.failed == []
    assert listener.num_steps == 0


async def test_a_call_that_finds_the_runner_lost_fails_as_unavailable_and_ends_the_thread() -> None:
    thread, listener = start(LostEngine(has_work=False))
    with pytest.raises(UnavailableError, match="gone"):
        await thread.call_when_idle(lambda: LostEngine(has_work=False).step())
    await asyncio.wait_for(listener.crashed.wait(), 5)
    await thread.join()


@pytest.mark.parametrize("has_work", [True, False])
async def test_an_engine_that_is_broken_ends_the_worker_and_does_not_stand_still(has_work: bool) -> None:
    """The thread ended without a word: the worker seemed well, and its requests waited for ever."""

    class BrokenEngine(LostEngine):
        def step(self) -> list[Any]:
            raise AssertionError("a block is lost or in two states")

        def recover(self, error: str) -> list[Any]:
            raise AssertionError("wrong references")

    thread, listener = start(BrokenEngine(has_work=has_work))
    thread.post(lambda engine: engine.recover(""))
    await asyncio.wait_for(listener.crashed.wait(), 5)
    await thread.join()
    assert thread.has_crashed
