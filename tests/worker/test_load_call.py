"""What a load and the call that asked for it know of each other."""

import asyncio
from contextlib import aclosing

import pytest

from headway.core.errors import CancelledError
from headway.worker.load_call import LoadCall


async def test_progress_from_another_thread_arrives_in_order_and_ends_with_the_load() -> None:
    call = LoadCall()

    def load() -> None:
        call.tell(0.0, "meeting", rendezvous="127.0.0.1:1/a")
        call.tell(1.0, "loading")

    task = asyncio.create_task(asyncio.to_thread(load))
    steps = [step async for step in call.progress(task)]
    assert [(step.fraction, step.stage, step.rendezvous) for step in steps] == [
        (0.0, "meeting", "127.0.0.1:1/a"),
        (1.0, "loading", ""),
    ]
    call.check()  # nobody has gone away


async def test_a_reader_that_goes_away_cancels_the_load() -> None:
    call = LoadCall()
    ended = asyncio.Event()
    task = asyncio.create_task(_load(call, ended))
    async with aclosing(call.progress(task)) as steps:
        await anext(steps)
    assert call.is_cancelled()
    with pytest.raises(CancelledError):
        call.check()
    ended.set()
    await task


async def _load(call: LoadCall, ended: asyncio.Event) -> None:
    call.tell(0.5, "loading")
    await ended.wait()
