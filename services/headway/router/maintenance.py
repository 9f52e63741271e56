"""The router's background work: it writes counters, ends lost leases and checks the lease table."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from headway.core.errors import HeadwayError
from headway.router.config import RouterConfig
from headway.router.lease import Lease
from headway.router.service import RouterService
from headway.rpc.peers import Peers

log = logging.getLogger(__name__)

_MAINTAIN_EVERY_S = 1.0
_SETTLE_S = 1.0


class Maintenance:
    """The background work of one `RouterService`."""

    def __init__(self, config: RouterConfig, service: RouterService, *, peers: Peers) -> None:
        self._config = config
        self._service = service
        self._peers = peers
        self._absent_since_s: dict[str, float] = {}
        self._started_s: dict[tuple[str, float], float] = {}  # by the monotonic clock, of each life of a gateway

    async def settle(self) -> None:
        """Prepares for the first request: reads the plan and the counters, and waits up to a second for every group's
        load.
        """
        await self._guard(self._service.follower.refresh)
        await self._guard(self._service.attainment.flush)
        num_groups = sum(member.is_leader for member in self._peers.members("worker"))
        deadline_s = time.monotonic() + _SETTLE_S
        while time.monotonic() < deadline_s and self._num_reporting() < num_groups:  # noqa: ASYNC110 - once
            await asyncio.sleep(0.01)

    async def maintain(self) -> None:
        """Once a second; runs until cancelled. Leases that don't add up are a bug, and end the process."""
        while True:
            await asyncio.sleep(_MAINTAIN_EVERY_S)
            self.end_lost_leases(time.monotonic())
            if self._service.dispatcher.lease_table.num_in_flight == 0:
                self._service.dispatcher.lease_table.check_integrity()
            await self._guard(self._service.attainment.flush)

    async def close(self) -> None:
        """Writes the last counts and arrivals before the router ends."""
        await self._guard(self._service.attainment.flush)
        await self._guard(self._service.traffic.flush)

    def end_lost_leases(self, now_s: float) -> None:
        """Ends the leases of gateways that are gone or were started anew, and those that nobody released."""
        lease_table = self._service.dispatcher.lease_table
        started_s = self._note_starts(now_s)
        absent = lease_table.gateway_ids - started_s.keys()
        self._absent_since_s = {gateway: self._absent_since_s.get(gateway, now_s) for gateway in absent}
        lost: list[Lease] = lease_table.expire(before_s=now_s - self._config.max_lease_s)
        for gateway_id, since_s in started_s.items():
            lost += lease_table.close_gateway(gateway_id, before_s=since_s)
        for gateway_id, absent_s in self._absent_since_s.items():
            if now_s - absent_s >= self._config.gateway_grace_s:
                lost += lease_table.close_gateway(gateway_id, before_s=now_s)
        if lost:
            log.warning("ended %d leases that nobody will release", len(lost))
            self._service.freed(lost)

    def _note_starts(self, now_s: float) -> dict[str, float]:
        """When each gateway started. It is found out once: the clock may be set while they run."""
        gateways = {(gateway.member_id, gateway.started_at_s) for gateway in self._peers.members("gateway")}
        self._started_s = {
            (gateway_id, started_at_s): self._started_s.get(
                (gateway_id, started_at_s), now_s - max(0.0, time.time() - started_at_s)
            )
            for gateway_id, started_at_s in gateways
        }
        return {gateway_id: started_s for (gateway_id, _), started_s in self._started_s.items()}

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        """Redis may be away: what is known goes on being used."""
        try:
            await work()
        except HeadwayError as error:
            log.warning("%s", error)

    def _num_reporting(self) -> int:
        return sum(group.state != "unreachable" for group in self._service.dispatcher.fleet.groups)
