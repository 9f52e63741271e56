"""Objects are followed: each failure makes the next wait longer."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from headway.controller.kubernetes.api import PODS, ResourceKind, ResourceList
from headway.controller.kubernetes.watch import ResourceWatch
from headway.core.errors import FailedPreconditionError


class Server:
    """It lets its objects be listed, and refuses to be watched but for the sixth time.

    Attributes:
        waits_s: between its answers.
    """

    def __init__(self) -> None:
        self.waits_s: list[float] = []
        self._num_watches = 0

    async def list(self, kind: ResourceKind, /, *, selector: str) -> ResourceList:
        return ResourceList(version="1", objects=({"metadata": {"name": "a"}},))

    async def watch(
        self, kind: ResourceKind, /, *, version: str, selector: str
    ) -> AsyncIterator[tuple[str, Mapping[str, Any]]]:
        self._num_watches += 1
        if self._num_watches == 6:
            yield "ADDED", {"metadata": {"name": "b"}}
        raise FailedPreconditionError("The API server answers 403.")

    async def sleep(self, duration_s: float) -> None:
        self.waits_s.append(duration_s)
        if len(self.waits_s) == 8:
            raise asyncio.CancelledError


async def test_a_server_that_lets_nobody_watch_is_asked_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.setattr("headway.controller.kubernetes.watch.asyncio.sleep", server.sleep)
    pods = ResourceWatch(server, PODS)
    with pytest.raises(asyncio.CancelledError):
        await pods.follow()
    assert server.waits_s == [0.5, 1, 2, 4, 8, 0.5, 1, 2]
    assert pods.objects is not None
    assert pods.objects.keys() == {"a"}
