"""Pinned prefixes: kept in Redis, and resident on every worker of their model.

Each worker is told the whole list of its model's prefixes, whenever that list is not the one it has: because the list
changed, or because the worker's cache began anew and holds nothing.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.core.errors import HeadwayError, NotFoundError
from headway.core.kv import Holder, PinnedPrefix
from headway.core.replica import ReplicaId
from headway.kvcache.prefix import Prefix, check_prefix
from headway.store.documents import Documents

log = logging.getLogger(__name__)

_CHECK_EVERY_S = 0.5
_RETRY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """A worker that serves a model. `epoch` changes when its cache starts anew."""

    worker_id: str
    endpoint: str
    model: str
    epoch: str

    @property
    def replica(self) -> ReplicaId:
        return ReplicaId(self.worker_id, self.model)


class PinClient(Protocol):
    """Tells workers what to keep."""

    async def set_pins(self, home: Home, prefixes: Sequence[Prefix]) -> list[Holder]:
        """Pins exactly these prefixes on a worker and returns what came of each; HeadwayError where the worker does not
        answer.
        """


@dataclass(frozen=True, slots=True)
class _Told:
    """The pins that a worker was sent, and its answer."""

    home: Home
    prefixes: tuple[Prefix, ...]
    holders: tuple[Holder, ...]
    at_s: float

    def is_enough(self, home: Home, prefixes: tuple[Prefix, ...], *, now_s: float) -> bool:
        """Whether there is nothing new to tell, and nothing that failed and is to be tried again."""
        has_fault = any(holder.fault for holder in self.holders)
        is_due = has_fault and now_s - self.at_s >= _RETRY_S
        return self.home == home and self.prefixes == prefixes and not is_due


class Pins:
    """The pinned prefixes of a stack.

    Args:
        homes: the workers at the moment.
    """

    def __init__(self, store: Documents[Prefix], client: PinClient, *, homes: Callable[[], Iterable[Home]]) -> None:
        self._store = store
        self._client = client
        self._homes = homes
        self._prefixes: dict[str, Prefix] = {}
        self._told: dict[ReplicaId, _Told] = {}
        self._changing = asyncio.Lock()

    async def run(self) -> None:
        """Keeps workers told; runs until cancelled."""
        while True:
            async with self._changing:
                try:
                    self._prefixes = {prefix.name: prefix for prefix in await self._store.all()}
                except HeadwayError as error:
                    log.warning("keeping the last known prefixes: %s", error)
                await self._tell_all()
            await asyncio.sleep(_CHECK_EVERY_S)

    async def pin(self, prefix: Prefix) -> PinnedPrefix:
        """Keeps a prefix, in place of one of the same name; returns when the workers have it, or say why not."""
        check_prefix(prefix)
        async with self._changing:
            await self._store.put(prefix, prefix.name)
            self._prefixes[prefix.name] = prefix
            await self._tell_all()
        return self._describe(prefix)

    async def unpin(self, name: str) -> None:
        """Lets a prefix go like any other content; NotFoundError where there is none of that name."""
        async with self._changing:
            if await self._store.get(name) is None:
                raise NotFoundError(
                    f"No prefix '{name}' is pinned.", hint="`headway prefix list` shows those that are.", field="name"
                )
            await self._store.delete(name)
            self._prefixes.pop(name, None)
            await self._tell_all()

    def all(self) -> list[PinnedPrefix]:
        """Returns all pinned prefixes, in the order of their names."""
        return [self._describe(self._prefixes[name]) for name in sorted(self._prefixes)]

    async def _tell_all(self) -> None:
        homes = {home.replica: home for home in self._homes()}
        self._told = {replica: told for replica, told in self._told.items() if replica in homes}
        await asyncio.gather(*map(self._tell, homes.values()))

    async def _tell(self, home: Home) -> None:
        prefixes = tuple(prefix for _, prefix in sorted(self._prefixes.items()) if prefix.model == home.model)
        told = self._told.get(home.replica)
        now_s = time.monotonic()
        if told is not None and told.is_enough(home, prefixes, now_s=now_s):
            return
        try:
            holders = await self._client.set_pins(home, prefixes)
        except HeadwayError as error:
            log.warning("%s was not told of its prefixes: %s", home.worker_id, error)
            holders = [Holder(worker_id=home.worker_id, fault=error.message) for _ in prefixes]
            if not prefixes:
                return
        self._told[home.replica] = _Told(home, prefixes, tuple(holders), now_s)

    def _describe(self, prefix: Prefix) -> PinnedPrefix:
        holders = [
            holder
            for told in self._told.values()
            for known, holder in zip(told.prefixes, told.holders, strict=True)
            if known == prefix
        ]
        return PinnedPrefix(
            name=prefix.name,
            model=prefix.model,
            num_tokens=len(prefix.token_ids),
            created_at_s=prefix.created_at_s,
            holders=tuple(sorted(holders, key=lambda holder: holder.worker_id)),
        )
