"""The order of a group's steps at its leader, for several models."""

from types import SimpleNamespace
from typing import Any

from headway.core.mesh import ParallelConfig
from headway.runner.parallel.leader import Leader, Step
from headway.runner.step_message import StepKind, StepMessage


def start(leader: Leader, number: int) -> Step[int]:
    message = StepMessage(StepKind.STEP, model=number)
    return leader.start(message, compute=lambda: number, expect=lambda: None)


def test_each_model_hears_when_there_is_room_in_the_pipeline() -> None:
    """One that started a step without would have to wait for it, and could not tell of what has come back meanwhile."""
    group: Any = SimpleNamespace(parallel=ParallelConfig(pp=2), control=None, leave=lambda: None)
    leader = Leader(group)
    told: list[int] = []
    for number in (0, 1):
        leader.open(number)
        leader.watch(number, lambda number=number: told.append(number))  # type: ignore[misc]
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
