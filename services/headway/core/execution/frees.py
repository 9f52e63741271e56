"""Where the actions of a rank give up slots: behind the last one that reads or writes them. Pure."""

from collections.abc import Iterator, Sequence

from headway.core.execution.execution import RUNS, Action, ActionKind, PartSpec, Slot


def with_frees(actions: Sequence[Action], parts: Sequence[PartSpec]) -> Iterator[Action]:
    """The actions, with one that frees slots behind each that is the last to need any."""
    last: dict[Slot, int] = {}
    for at, action in enumerate(actions):
        last |= dict.fromkeys(_held(action, parts), at)
    ends: dict[int, list[Slot]] = {}
    for slot, at in last.items():
        ends.setdefault(at, []).append(slot)
    for at, action in enumerate(actions):
        yield action
        if at in ends:
            yield Action(kind=ActionKind.FREE, slots=tuple(sorted(ends[at])))


def slots_of(action: Action, values: Sequence[int]) -> list[Slot]:
    """The values for the examples of a run."""
    return [Slot(value=value, first=action.first, count=action.count) for value in values]


def _held(action: Action, parts: Sequence[PartSpec]) -> Sequence[Slot]:
    """What the action reads or writes on its own rank."""
    if action.kind in RUNS:
        part = parts[action.part]
        return slots_of(action, (*part.reads, *part.writes))
    return action.slots[1:] if action.kind is ActionKind.SEND else action.slots
