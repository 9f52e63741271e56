"""Timings of hardware in Redis: each is there as soon as it is known."""

import json
from collections.abc import Awaitable
from typing import cast

from headway.core.codec import from_document, to_document
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.hardware.cell import CellTiming
from headway.core.hardware.profile import HardwareProfile, LinkProfile, Machine
from headway.store.documents import Documents
from headway.store.redis import Database, redis_faults
from headway.store.schema import HARDWARE, HARDWARE_LINKS, HARDWARE_TIMINGS
from headway.store.spoilt import UNREADABLE


class HardwareTimings:
    """UnavailableError from every method while the store is away."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._machines = Documents(database, HARDWARE, Machine)
        self._links = Documents(database, HARDWARE_LINKS, LinkProfile)

    async def machines(self) -> list[Machine]:
        """Returns all machines on which something was timed."""
        return await self._machines.all()

    async def add_machine(self, machine: Machine) -> None:
        await self._machines.put(machine, machine.profile_id)

    async def add(self, profile_id: str, timing: CellTiming) -> None:
        with redis_faults():
            text = json.dumps(to_document(timing), allow_nan=False)
            await cast("Awaitable[int]", self._database.redis.hset(self._key(profile_id), timing.cell.key, text))

    async def all(self, profile_id: str) -> list[CellTiming]:
        """FailedPreconditionError, which names the cell, where one cannot be read."""
        with redis_faults():
            texts = await cast("Awaitable[dict[str, str]]", self._database.redis.hgetall(self._key(profile_id)))
        return [_read(str(name), str(text)) for name, text in sorted(texts.items())]

    async def publish_links(self, profile: HardwareProfile) -> None:
        """Publishes the fitted links for planners, who read fits and no timings; a profile without collectives
        publishes nothing.
        """
        if profile.links:
            links = LinkProfile(machine=profile.machine, created_at_s=profile.created_at_s, links=profile.links)
            await self._links.put(links, profile.profile_id)

    async def forget(self, profile_id: str) -> bool:
        """Returns whether there was anything."""
        with redis_faults():
            num_deleted = await self._database.redis.delete(self._key(profile_id))
        await self._links.delete(profile_id)
        return await self._machines.delete(profile_id) or num_deleted > 0

    def _key(self, profile_id: str) -> str:
        return HARDWARE_TIMINGS.key(self._database.namespace, profile_id)


def _read(name: str, text: str) -> CellTiming:
    try:
        return from_document(CellTiming, json.loads(text), is_stored=True)
    except (*UNREADABLE, InvalidArgumentError) as error:
        raise FailedPreconditionError(
            f"The stored timing of {name} cannot be read: {error}",
            hint="`headway profile hardware --fresh` measures all again.",
            field=name,
        ) from error
