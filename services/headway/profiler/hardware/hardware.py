"""Profiles hardware, cell by cell, where nothing is known yet."""

import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from typing import Protocol

from headway.core.errors import InvalidArgumentError
from headway.core.hardware.calibration import HardwareProgress, HardwareWanted
from headway.core.hardware.cell import Cell, CellTiming
from headway.core.hardware.family import COLLECTIVES, COMPUTE, CellFamily, Transport, collective_families
from headway.core.hardware.profile import HardwareProfile, Machine
from headway.profiler.hardware.links import fit_links
from headway.store.hardware import HardwareTimings

_RANKS = (2, 4, 8)


class Calibrator(Protocol):
    """Times cells, somewhere."""

    async def machine(self) -> Machine: ...

    async def max_ranks(self, machine: Machine) -> Mapping[Transport, int]:
        """Among how many collectives can be timed there."""

    def time(self, cells: Iterable[Cell]) -> AsyncGenerator[CellTiming | str, None]:
        """Yields each cell's timing, in any order, and in words what it waits for."""


async def profile_hardware(
    wanted: HardwareWanted, *, calibrator: Calibrator, timings: HardwareTimings
) -> AsyncGenerator[HardwareProgress, None]:
    """Yields after every cell, and at last the profile. What is stored already is not timed again.

    Raises:
        InvalidArgumentError: there is no such family of cells.
        UnavailableError: what times died, or Redis is away; what was timed is kept.
    """
    machine = await calibrator.machine()
    cells = _cells(wanted, await calibrator.max_ranks(machine))
    if wanted.fresh:
        await timings.forget(machine.profile_id)
    await timings.add_machine(machine)
    known = {timing.cell: timing for timing in await timings.all(machine.profile_id)}
    missing = [cell for cell in cells if cell not in known]
    num_done = len(cells) - len(missing)
    yield HardwareProgress(num_done=num_done, num_total=len(cells))
    if missing:
        async with aclosing(calibrator.time(missing)) as answers:
            async for answer in answers:
                if isinstance(answer, str):
                    yield HardwareProgress(num_done=num_done, num_total=len(cells), waits_for=answer)
                    continue
                await timings.add(machine.profile_id, answer)
                known[answer.cell] = answer
                num_done += 1
                yield HardwareProgress(num_done=num_done, num_total=len(cells), cell=answer.cell.key)
    profile = build_profile(machine, known.values())
    await timings.publish_links(profile)
    yield HardwareProgress(num_done=num_done, num_total=len(cells), profile=profile)


def build_profile(machine: Machine, timings: Iterable[CellTiming]) -> HardwareProfile:
    """Builds the profile, with the fits of the links."""
    found = tuple(sorted(timings, key=lambda timing: timing.cell.key))  # whether they are new or were stored
    return HardwareProfile(machine=machine, created_at_s=time.time(), timings=found, links=fit_links(found))


def _cells(wanted: HardwareWanted, max_ranks: Mapping[Transport, int]) -> list[Cell]:
    families = [*COMPUTE, *_collectives(wanted.max_ranks, max_ranks)]
    known = {family.name for family in families}
    if unknown := [name for name in wanted.families if name not in known]:
        raise _refusal(unknown[0], known, wanted.max_ranks, max_ranks)
    chosen = [family for family in families if not wanted.families or family.name in wanted.families]
    return [cell for family in chosen for cell in family.cells()]


def _refusal(name: str, known: Iterable[str], wanted: int, possible: Mapping[Transport, int]) -> InvalidArgumentError:
    choices = f"Choose of {', '.join(sorted(known))}."
    collective = COLLECTIVES.get(name)
    if collective is None:
        return InvalidArgumentError(f"Nothing that is timed here is called '{name}'.", hint=choices, field="only")
    room = min(wanted, possible.get(collective.transport, 0))
    return InvalidArgumentError(
        f"'{name}' is timed among 2 ranks or more over {collective.transport}: there is room for {room} here.",
        hint="Each rank takes a worker of its own, or beside a lone worker a core (with NCCL a GPU); --ranks limits "
        f"both. {choices}",
        field="only",
    )


def _collectives(wanted: int, possible: Mapping[Transport, int]) -> list[CellFamily]:
    return [
        family
        for transport, limit in possible.items()
        for family in collective_families([number for number in _RANKS if number <= min(wanted, limit)], transport)
    ]
