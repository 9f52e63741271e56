"""A reader that waits: woken once for many items, and not at all for those that another can see to."""

import asyncio

import pytest

from headway.gateway.output_queue import OutputQueue


async def test_one_wake_up_for_many_items() -> None:
    output_queue: OutputQueue[int] = OutputQueue()
    reader = asyncio.create_task(output_queue.take())
    await asyncio.sleep(0)
    output_queue.put(1)
    output_queue.put(2)
    assert await reader == [1, 2]
    output_queue.put_back([3, 4])
    output_queue.put(5)
    assert await output_queue.take() == [3, 4, 5]


async def test_a_reader_sleeps_through_what_its_shortcut_takes() -> None:
    output_queue: OutputQueue[int] = OutputQueue()
    passed: list[int] = []

    def take_even(item: int) -> bool:
        passed.extend([item] * (item % 2 == 0))
        return item % 2 == 0

    reader = asyncio.create_task(output_queue.take(take_even))
    await asyncio.sleep(0)
    for item in (2, 4):
        output_queue.put(item)
    await asyncio.sleep(0)
    assert (passed, reader.done()) == ([2, 4], False)
    for item in (5, 6):  # 6 must not overtake 5
        output_queue.put(item)
    assert (await reader, passed) == ([5, 6], [2, 4])


async def test_the_shortcut_is_the_waiting_readers_only() -> None:
    output_queue: OutputQueue[int] = OutputQueue()
    passed: list[int] = []
    output_queue.put(1)
    assert await output_queue.take(lambda item: not passed.append(item)) == [1], "what was there is not passed on"
    output_queue.put(2)
    assert (await output_queue.take(), passed) == ([2], [])


async def test_what_a_shortcut_raises_is_the_readers() -> None:
    output_queue: OutputQueue[int] = OutputQueue()

    def fail(item: int) -> bool:
        raise ValueError(f"no {item}")

    reader = asyncio.create_task(output_queue.take(fail))
    await asyncio.sleep(0)
    output_queue.put(7)
    with pytest.raises(ValueError, match="no 7"):
        await reader
    output_queue.put(8)
    assert await output_queue.take() == [8]
