"""Finding and calling other processes: the membership in Redis, watched, and channels to its members.

When Redis is away the last known members stay, so that serving goes on.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import grpc

from headway.core.errors import HeadwayError, InvalidArgumentError, UnavailableError
from headway.rpc.certificates import Certificates, open_channel
from headway.rpc.closing import unavailable_when_closed
from headway.rpc.status import carries_error, error_from_rpc
from headway.rpc.tasks import end_tasks
from headway.store.membership import Member, Membership

log = logging.getLogger(__name__)

S = TypeVar("S")
R = TypeVar("R")

_REFRESH_EVERY_S = 1.0
_LONGEST_CALL_S = 600.0
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 3000),  # so long may one attempt take: a busy process answers late
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 15_000),  # of pings that measure the bandwidth: others wait for their answers
    ("grpc.dns_min_time_between_resolutions_ms", 1000),  # a name that leads elsewhere is followed at once
    ("grpc.enable_http_proxy", 0),
)


class Peers:
    """The members of the stack by kind, with one channel per endpoint.

    They are looked up when one announces something, and once a second: some go without a word. Where they cannot be,
    the last known ones stay.

    Attributes:
        fault: why the members are not those of this moment; empty if they are.

    Use as `async with Peers(membership, token=...).watching() as peers`.
    """

    def __init__(
        self, membership: Membership, *, token: str | None = None, certificates: Certificates | None = None
    ) -> None:
        """Without `certificates` calls are not encrypted."""
        self._membership = membership
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._members: list[Member] = []
        self.fault = ""
        self._certificates = certificates
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator["Peers"]:
        await self.refresh()
        task = asyncio.create_task(self._watch(), name="watch-members")
        try:
            yield self
        finally:
            await end_tasks([task, *self._retiring])
            for channel in self._channels.values():
                await channel.close()

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata to send with every call; it holds the token where one is set."""
        return self._metadata

    @property
    def everyone(self) -> list[Member]:
        """Live members of all kinds."""
        return list(self._members)

    def members(self, kind: str) -> list[Member]:
        """Live members of a kind, the newest first."""
        return [member for member in self._members if member.kind == kind]

    def channel(self, endpoint: str) -> grpc.aio.Channel:
        if endpoint not in self._channels:
            self._channels[endpoint] = self._open(endpoint)
        return self._channels[endpoint]

    @asynccontextmanager
    async def dial(self, endpoint: str) -> AsyncIterator[grpc.aio.Channel]:
        """A channel of the caller's own. It outlives the member's lease: a shared one is closed when that lapses,
        which cancels the calls on it. InvalidArgumentError where it is no endpoint."""
        if not (endpoint.isprintable() and all(endpoint.rpartition(":"))):
            raise InvalidArgumentError(f"{endpoint!r} is no host:port.", field="endpoint")
        self._renew_certificates()
        async with self._open(endpoint) as channel:
            yield channel

    def _open(self, endpoint: str) -> grpc.aio.Channel:
        return open_channel(endpoint, self._certificates, options=CHANNEL_OPTIONS)

    def newest(self, kind: str) -> Member:
        """The newest member of a kind; UnavailableError when there is none."""
        members = self.members(kind)
        if not members:
            raise UnavailableError(
                f"No {kind} is running.",
                hint="It is being restarted; try again in a second.",
                retry_after_s=1.0,
            )
        return members[0]

    def stub(self, kind: str, stub_type: Callable[[grpc.aio.Channel], S]) -> S:
        """A stub on the newest member of a kind; UnavailableError when there is none."""
        return stub_type(self.channel(self.newest(kind).endpoint))

    async def call(
        self,
        kind: str,
        stub_type: Callable[[grpc.aio.Channel], S],
        method: Callable[[S], Awaitable[R]],
    ) -> R:
        """`method(stub)` on the newest member; where that cannot be reached, once more on whoever took its place.

        Raises the HeadwayError that the service raised.
        """
        peer = f"The {kind}"
        try:
            with unavailable_when_closed(peer):
                return await method(self.stub(kind, stub_type))
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE or carries_error(error):
                raise error_from_rpc(error) from None
        except UnavailableError as error:
            log.debug("looking for another %s: %s", kind, error)
        await self.refresh()
        try:
            with unavailable_when_closed(peer):
                return await method(self.stub(kind, stub_type))
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from None

    async def wait_for_change(self, *, timeout_s: float) -> None:
        """Returns when the members changed, or after `timeout_s`."""
        async with self._changed:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()

    async def refresh(self) -> None:
        """Looks at once who is there."""
        self._renew_certificates()
        try:
            members = await self._membership.members()
        except HeadwayError as error:
            if not self.fault:
                log.warning("keeping the last known members: %s", error)
            self.fault = error.message
            return
        self.fault = ""
        if members == self._members:
            return
        self._members = members
        endpoints = {member.endpoint for member in members}
        for endpoint in self._channels.keys() - endpoints:
            await self._channels.pop(endpoint).close()
        async with self._changed:
            self._changed.notify_all()

    def _renew_certificates(self) -> None:
        """Calls from now on are made with the certificates that the files hold. Shared channels make place for others,
        and close once the calls on them have ended; streams go on, on channels of their own."""
        if self._certificates is None or not self._certificates.renew():
            return
        log.info("calling with new certificates")
        retired, self._channels = self._channels, {}
        for channel in retired.values():
            task = asyncio.create_task(channel.close(_LONGEST_CALL_S), name="retire-channel")
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    async def _watch(self) -> None:
        async with self._membership.announcements() as announcements:
            while True:
                try:
                    await announcements.wait(timeout_s=_REFRESH_EVERY_S)
                except HeadwayError:  # the refresh says so
                    await asyncio.sleep(_REFRESH_EVERY_S)
                await self.refresh()
