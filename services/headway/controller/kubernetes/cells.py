"""The next steps from the cells of a pool to as many as are wanted. Pure."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A pod of a pool.

    Attributes:
        uid: of this very pod; another of its name has another.
        is_ready: whether it has loaded all that the plan gives it.
        is_ending: whether it was deleted, and drains.
        has_ended: whether its containers are over and are not started again, as after an eviction.
        is_outdated: whether the pool would make it otherwise now.
        trouble: why it does not run, as far as that is told; empty for nothing.
    """

    name: str
    uid: str
    is_ready: bool = False
    is_ending: bool = False
    has_ended: bool = False
    is_outdated: bool = False
    trouble: str = ""

    @property
    def is_live(self) -> bool:
        return not self.is_ending and not self.has_ended


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSteps:
    """What is to be done now, and again when that is seen to be done.

    Attributes:
        create: names of new cells.
        drain: cells that are to go when they serve nothing any more.
        delete: cells that go at once.
        staying: names of the cells that there are to be in the end, also of those that end and come again.
    """

    staying: tuple[str, ...]
    create: tuple[str, ...] = ()
    drain: tuple[Cell, ...] = ()
    delete: tuple[Cell, ...] = ()


def next_steps(
    pool: str, cells: Sequence[Cell], *, num_wanted: int, serving: Collection[str], unplanned: Collection[str]
) -> CellSteps:
    """Grows at once, shrinks by cells that are drained, and replaces outdated cells one after the other.

    Args:
        serving: names of cells with a worker that serves something.
        unplanned: cells that the desired plan does without: those that were to go before, if any were.
    """
    ended = tuple(cell for cell in cells if cell.has_ended and not cell.is_ending)
    live = [cell for cell in cells if cell.is_live]
    num_leaving = max(0, len(live) - num_wanted)
    leaving = sorted(live, key=lambda cell: _worth(cell, serving, unplanned))[:num_leaving]
    gone = tuple(cell for cell in leaving if cell.name not in serving)
    create = tuple(_free_names(pool, cells, num_wanted - len(cells)))
    names = [cell.name for cell in live if cell not in leaving] + list(create)
    returning = [cell.name for cell in cells if not cell.is_live][: num_wanted - len(names)]
    return CellSteps(
        staying=(*names, *returning),
        create=create,
        drain=tuple(cell for cell in leaving if cell not in gone),
        delete=(*ended, *gone, *(_outdated(cells, live, serving) if len(live) == num_wanted else ())),
    )


def _outdated(cells: Sequence[Cell], live: Sequence[Cell], serving: Collection[str]) -> tuple[Cell, ...]:
    """The cell that is to be replaced next; none while another one is, unless it serves nobody."""
    outdated = [cell for cell in live if cell.is_outdated]
    stuck = [cell for cell in outdated if not cell.is_ready]  # a newer one may be better
    if idle := [cell for cell in stuck if cell.name not in serving]:
        return (idle[0],)
    is_settled = len(live) == len(cells) and all(cell.is_ready or cell.is_outdated for cell in live)
    return tuple([*stuck, *outdated][:1]) if is_settled else ()


def _worth(cell: Cell, serving: Collection[str], unplanned: Collection[str]) -> tuple[bool, bool, bool, bool, int]:
    """Sorts those first that can be done without most easily; of equal ones the last."""
    return (
        cell.name not in unplanned,
        cell.name in serving,
        cell.is_ready,
        not cell.is_outdated,
        -_index(cell.name),
    )


def _free_names(pool: str, cells: Sequence[Cell], num: int) -> Iterator[str]:
    """The first that no pod has, also none that still ends; none for less than one."""
    taken, free = {cell.name for cell in cells}, 0
    for index in count():
        if free >= num:
            return
        if (name := f"{pool}-{index}") not in taken:
            free += 1
            yield name


def _index(name: str) -> int:
    index = name.rpartition("-")[2]
    return int(index) if index.isdigit() else 0
