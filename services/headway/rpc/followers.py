"""One task per live member of a kind, such as one that reads a stream of each worker."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headway.core.errors import HeadwayError
from headway.rpc.peers import Peers
from headway.rpc.tasks import end_tasks
from headway.store.membership import Member

log = logging.getLogger(__name__)

_CHECK_EVERY_S = 0.5
_MIN_RETRY_S = 0.1
_MAX_RETRY_S = 1.0
# All leases lapse at once while Redis is away, and are back within a renewal once it returns.
_LEASE_GRACE_S = 2.0


@dataclass(slots=True)
class _Following:
    member: Member
    task: asyncio.Task[None]
    missing_since_s: float | None = None


class Followers:
    """Follows every member of a kind that it accepts, until it is gone or accepted no more.

    `follow(member)` reads a stream, say, until that breaks. When it returns or raises a HeadwayError it is called
    again while the member holds its lease. A member whose lease lapsed is followed on for two seconds if its stream
    lives. `lose(member)` is called once for each that is gone; another run of its process is another one.
    Whatever else `follow` raises is a bug, and `run` raises it.
    """

    def __init__(
        self,
        peers: Peers,
        kind: str,
        *,
        follow: Callable[[Member], Awaitable[None]],
        lose: Callable[[Member], None],
        accepts: Callable[[Member], bool] = lambda _: True,
    ) -> None:
        self._peers = peers
        self._kind = kind
        self._accepts = accepts
        self._follow = follow
        self._lose = lose
        self._following: dict[str, _Following] = {}

    async def run(self) -> None:
        """Follows the members until cancelled."""
        try:
            while True:
                self._match(time.monotonic())
                await self._peers.wait_for_change(timeout_s=_CHECK_EVERY_S)
        finally:
            await end_tasks([following.task for following in self._following.values()])

    def _match(self, now_s: float) -> None:
        live = {member.member_id: member for member in self._peers.members(self._kind)}
        for member_id, following in list(self._following.items()):
            if not self._goes_on(following, live.get(member_id), now_s):
                del self._following[member_id]
                following.task.cancel()
                self._lose(following.member)
        for member_id, member in live.items():
            if member_id not in self._following and self._accepts(member):
                task = asyncio.create_task(self._keep_following(member), name=f"follow-{member_id}")
                self._following[member_id] = _Following(member, task)

    def _goes_on(self, following: _Following, member: Member | None, now_s: float) -> bool:
        if following.task.done():
            following.task.result()
            return False
        if member is not None:
            following.missing_since_s = None
            return member.run == following.member.run and self._accepts(member)
        if following.missing_since_s is None:
            following.missing_since_s = now_s
        return now_s - following.missing_since_s < _LEASE_GRACE_S

    async def _keep_following(self, member: Member) -> None:
        retry_s = _MIN_RETRY_S
        while True:
            started_s = time.monotonic()
            try:
                await self._follow(member)
            except HeadwayError as error:
                level = logging.INFO if retry_s == _MIN_RETRY_S else logging.DEBUG
                log.log(level, "lost the stream of %s: %s", member.member_id, error)
            if not self._holds_lease(member):
                return
            if time.monotonic() - started_s > _MAX_RETRY_S:
                retry_s = _MIN_RETRY_S
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, _MAX_RETRY_S)

    def _holds_lease(self, member: Member) -> bool:
        return any(
            other.member_id == member.member_id and other.run == member.run for other in self._peers.members(self._kind)
        )
