"""Where the actions of a rank give up slots: behind the last one that reads or makes them. Pure."""

from collections.abc import Iterator, Sequence

from headway.core.execution.execution import Action, ActionKind, Slot
from headway.core.execution.slots import SlotFinder


def with_frees(actions: Sequence[Action], rank: int, slots: SlotFinder) -> Iterator[Action]:
    """The actions, with one that frees slots behind each that is the last to need any."""
    last: dict[Slot, int] = {}
    for at, action in enumerate(actions):
        last |= dict.fromkeys((*slots.reads(rank, action), *slots.makes(rank, action)), at)
    ends: dict[int, list[Slot]] = {}
    for slot, at in last.items():
        ends.setdefault(at, []).append(slot)
    for at, action in enumerate(actions):
        yield action
        if at in ends:
            yield Action(kind=ActionKind.FREE, slots=tuple(sorted(ends[at])))
