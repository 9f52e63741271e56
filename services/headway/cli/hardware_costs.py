"""Operator costs on the hardware that `--hardware` names."""

import asyncio
from pathlib import Path

from headway.cli.private_store import store_of
from headway.cli.supervisor.supervisor import NAMESPACE
from headway.client.stack import default_state_dir
from headway.core.catalogue import read_catalogue
from headway.core.cost.catalogued import CatalogueCosts, find_device
from headway.core.cost.costs import Costs
from headway.core.cost.measured import MeasuredCosts
from headway.core.errors import FailedPreconditionError
from headway.core.hardware.profile import HardwareProfile
from headway.store.hardware import HardwareTimings
from headway.store.redis import Database

HERE = "here"


def costs_on(hardware: str, *, catalogue: Path | None, state_dir: Path | None) -> Costs:
    """Costs on a device of the catalogue, or as measured; see `find_measured`.

    Raises:
        NotFoundError: it is neither.
        FailedPreconditionError: nothing was measured here.
    """
    measured = find_measured(hardware, state_dir=state_dir)
    if measured is not None:
        return MeasuredCosts(measured)
    return CatalogueCosts(find_device(read_catalogue(catalogue), hardware))


def find_measured(hardware: str, *, state_dir: Path | None) -> HardwareProfile | None:
    """What was measured 'here', or under a hardware profile's id or its beginning; None where nothing has that id.

    Raises:
        FailedPreconditionError: nothing was measured here.
    """
    known = [] if state_dir is None and not default_state_dir().exists() else asyncio.run(_stored(hardware, state_dir))
    if not known and hardware == HERE:
        raise FailedPreconditionError(
            "Nothing was measured here.", hint="Run `headway profile hardware` first.", field="hardware"
        )
    return max(known, key=lambda profile: len(profile.timings), default=None)


async def _stored(hardware: str, state_dir: Path | None) -> list[HardwareProfile]:
    with store_of(state_dir or default_state_dir()) as redis_url:
        database = Database.connect(redis_url, namespace=NAMESPACE)
        try:
            store = HardwareTimings(database)
            machines = [m for m in await store.machines() if hardware == HERE or m.profile_id.startswith(hardware)]
            return [
                HardwareProfile(machine=machine, created_at_s=0.0, timings=tuple(await store.all(machine.profile_id)))
                for machine in machines
            ]
        finally:
            await database.close()
