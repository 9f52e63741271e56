"""The objects of one kind, as the API server last told of them."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from headway.controller.kubernetes.api import ResourceKind, ResourceList
from headway.core.errors import HeadwayError

log = logging.getLogger(__name__)

_FIRST_RETRY_S = 0.5
_LAST_RETRY_S = 30.0


class Lister(Protocol):
    async def list(self, kind: ResourceKind, /, *, selector: str) -> ResourceList: ...

    def watch(self, kind: ResourceKind, /, *, version: str, selector: str) -> Any: ...


class ResourceWatch:
    """Follows the objects of a kind, or those with the labels of a selector. What was heard stays while the API server
    is away: an outage deletes nothing.

    Attributes:
        objects: by name; None before they have been listed once.
        changed: set at each change, for whoever waits to clear.
    """

    def __init__(self, api: Lister, kind: ResourceKind, *, selector: str = "") -> None:
        self.objects: Mapping[str, Mapping[str, Any]] | None = None
        self.changed = asyncio.Event()
        self._api = api
        self._kind = kind
        self._selector = selector

    async def follow(self) -> None:
        """Lists them, listens for changes, and lists them anew every few minutes; waits longer after each failure."""
        retry_s = _FIRST_RETRY_S
        while True:
            try:
                listed = await self._api.list(self._kind, selector=self._selector)
                self._hear({each["metadata"]["name"]: each for each in listed.objects})
                following = self._api.watch(self._kind, version=listed.version, selector=self._selector)
                async for change, each in following:
                    retry_s = _FIRST_RETRY_S  # who may list them need not be let to follow them
                    name = each["metadata"]["name"]
                    others = {other: found for other, found in (self.objects or {}).items() if other != name}
                    self._hear(others if change == "DELETED" else {**others, name: each})
                retry_s = _FIRST_RETRY_S
                await asyncio.sleep(retry_s)
            except HeadwayError as error:
                log.warning("%s are not followed for %.1f s: %s", self._kind.plural, retry_s, error)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, _LAST_RETRY_S)

    def _hear(self, objects: Mapping[str, Mapping[str, Any]]) -> None:
        if objects != self.objects:
            self.objects = objects
            self.changed.set()
