"""The order of a group's steps at its leader, for several models."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from types import SimpleNamespace
from typing import Any

from headway.core.parallel_config import ParallelConfig
from headway.runner.parallel.leader import Leader, Step
from headway.runner.step_message import StepKind, StepMessage


def make_leader() -> Leader:
    """Of a pipeline of two whose other rank hears nothing, with two models."""
    group: Any = SimpleNamespace(parallel=ParallelConfig(pp=2), control=None, leave=lambda: None)
    leader = Leader(group)
    for number in (0, 1):
        leader.open(number)
    return leader


def start(leader: Leader, number: int, *, begun: Event | None = None, after: Event | None = None) -> Step[int]:
    """Of a model: tells when it is computed, and ends after an event."""

    def compute() -> int:
        if begun is not None:
            begun.set()
        if after is not None:
            after.wait()
        return number

    return leader.start(StepMessage(StepKind.STEP, model=number), compute=compute, expect=lambda: None)


def test_each_model_hears_when_there_is_room_in_the_pipeline() -> None:
    """One that started a step without would have to wait for it, and could not tell of what has come back meanwhile."""
    leader = make_leader()
    told: list[int] = []
    for number in (0, 1):
        leader.watch(number, partial(told.append, number))
    first = start(leader, 0)
    assert leader.has_room
    second = start(leader, 1)
    assert not leader.has_room
    assert leader.finish(first) == 0
    assert leader.has_room
    assert told == [0, 1]
    leader.close(1)  # finishes what is in flight
    assert leader.finish(second) == 1
    assert told == [0, 1, 0]


def test_a_step_that_another_models_thread_has_computed_is_told_at_once() -> None:
    """Not only when that thread's own step is done too."""
    leader, begun, first_may_end, second_may_end = make_leader(), Event(), Event(), Event()
    first = start(leader, 0, begun=begun, after=first_may_end)
    second = start(leader, 1, after=second_may_end)
    with ThreadPoolExecutor() as pool:
        try:
            other = pool.submit(leader.finish, second)  # computes both
            assert begun.wait(timeout=10)
            own = pool.submit(leader.finish, first)
            first_may_end.set()
            assert own.result(timeout=10) == 0
            assert not other.done()
        finally:
            first_may_end.set()
            second_may_end.set()
        assert other.result(timeout=10) == 1
