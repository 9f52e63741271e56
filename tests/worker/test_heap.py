"""What was unloaded is freed, however long somebody still holds it."""

import asyncio
import gc
import time
import weakref
from collections.abc import Iterator

import pytest

from headway.worker.heap import Heap

LOOK_S = 0.01


class Runner:
    """Refers to itself, as a model does by its parts: only the garbage collector frees it."""

    def __init__(self) -> None:
        self.part = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """What other tests have frozen is frozen again afterwards."""
    gc.unfreeze()
    yield
    gc.freeze()


async def until_frozen() -> None:
    deadline_s = time.monotonic() + 60
    while gc.get_freeze_count() == 0:
        assert time.monotonic() < deadline_s
        await asyncio.sleep(LOOK_S)


async def test_what_a_slow_call_still_holds_after_an_unload_is_freed_when_the_call_ends() -> None:
    heap, runner = Heap(first_look_s=LOOK_S), Runner()
    held = weakref.ref(runner)
    heap.free(held)
    await asyncio.sleep(8 * LOOK_S)
    heap.keep()  # the next model is loaded meanwhile
    assert gc.get_freeze_count() == 0
    del runner
    await until_frozen()
    assert held() is None


async def test_the_rest_is_frozen_at_once_where_nothing_leaves() -> None:
    Heap().keep()
    assert gc.get_freeze_count() > 0


async def test_two_that_leave_one_after_the_other_are_both_waited_for() -> None:
    heap, first, second = Heap(first_look_s=LOOK_S), Runner(), Runner()
    references = weakref.ref(first), weakref.ref(second)
    for reference in references:
        heap.free(reference)
    del first
    await asyncio.sleep(8 * LOOK_S)
    assert gc.get_freeze_count() == 0
    del second
    await until_frozen()
    assert [reference() for reference in references] == [None, None]
