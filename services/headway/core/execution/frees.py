"""Where the actions of a rank give up slots: behind the last one that reads or makes them. Pure."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from headway.core.execution.execution import RUNS, Action, ActionKind, RankList, Slot
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


def given_up(ranks: Sequence[RankList], slots: SlotFinder) -> list[tuple[int, ...]]:
    """Of each part the values that are given up behind every run of it that reads them."""
    found = [set(part.reads) for part in slots.parts]
    for each in ranks:
        for action, behind in pairwise(each.actions):
            if action.kind in RUNS:
                ended = behind.slots if behind.kind is ActionKind.FREE else ()
                numbers = slots.parts[action.part].reads
                read = zip(numbers, slots.of_run(each.rank, action, numbers), strict=True)
                found[action.part] &= {number for number, slot in read if slot in ended}
    return [tuple(sorted(numbers)) for numbers in found]
