"""The stream to the router, shared by every request."""

import asyncio
import contextvars
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headway.core.errors import HeadwayError, UnavailableError
from headway.core.move import MoveTarget
from headway.core.prefix_source import PrefixSource
from headway.gateway.lease import Lease, LeaseOutcome, PlaceRequest, Release
from headway.gateway.output_queue import OutputQueue
from headway.rpc.convert import from_pb
from headway.rpc.convert.slo import slo_to_pb
from headway.rpc.peers import Peers
from headway.rpc.status import error_from_pb, error_from_rpc
from headway.rpc.tasks import end_tasks
from headway.store.membership import Member
from headway.v1 import common_pb2, router_pb2, router_pb2_grpc

log = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 2.0
_LOOKS_EVERY_S = 1.0
# A router that has died has a successor in about a second.
_AWAITED_S = 2.0
_ASKED_EVERY_S = 0.5
# By then the lease of one that has died has lapsed. Where it has not, it was only this connection that broke.
_LOST_FOR_S = 3.0
# A router may let a request wait in its queue, so silence alone says nothing: while requests wait it is asked every so
# often whether it lives. One that does not answer is noticed within the sum of these two, so long as the successor of a
# dead one is waited for. On a machine that has more to do than it can, a sound one takes a second to answer.
_PROBE_EVERY_S = 0.2
_PROBE_TIMEOUT_S = 1.8


class _LinkBrokenError(Exception):
    """The stream broke before the answer came."""

    def __init__(self, cause: HeadwayError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _RouterSilentError(UnavailableError):
    """The router takes no notice of us; what it has been sent it will read when it goes on."""

    def __init__(self) -> None:
        super().__init__("The router does not answer.", hint="Try again in a moment.", retry_after_s=1.0)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that waits for its answer.

    Attributes:
        num_releases_before: how many there were on the stream before it.
    """

    attempt: int
    answer: "asyncio.Future[Lease]"
    num_releases_before: int


class RouterLink:
    """A gateway's stream to one router. It opens with the first action; once broken it is not used again.

    Attributes:
        endpoint: the router's address.
        is_broken: whether it takes no more actions.
        has_finished: whether the router has heard and answered everything, after `finish`.
        unheard: releases of which nothing says that the router has read them. It reads what it is sent in order, so an
            answer to a request says so of all releases before that.
    """

    def __init__(self, endpoint: str, peers: Peers) -> None:
        self.endpoint = endpoint
        self.is_broken = False
        self.has_finished = False
        self._is_finishing = False
        self.unheard: deque[router_pb2.Release] = deque()
        self._num_heard = 0
        self._num_answers = 0
        self._peers = peers
        self._waiting: dict[str, _Asked] = {}  # by request id
        self._actions: OutputQueue[router_pb2.DispatchRequest | None] = OutputQueue()  # None: no more

    @property
    def is_asked(self) -> bool:
        """Whether requests wait for its answer."""
        return bool(self._waiting)

    async def route(self, message: router_pb2.Route) -> Lease:
        """The router's answer. Where none is waited for any more, whoever asked has to take the request back.

        Raises:
            _LinkBrokenError: nobody will answer here.
            HeadwayError: the router refuses, or is stuck.
        """
        answer: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        num_releases_before = self._num_heard + len(self.unheard)
        self._waiting[message.request_id] = _Asked(message.attempt, answer, num_releases_before)
        self._actions.put(router_pb2.DispatchRequest(route=message))
        try:
            return await answer
        finally:
            self._waiting.pop(message.request_id, None)

    def release(self, message: router_pb2.Release) -> None:
        self.unheard.append(message)
        self._actions.put(router_pb2.DispatchRequest(release=message))

    def note_first_token(self, message: router_pb2.FirstToken) -> None:
        self._actions.put(router_pb2.DispatchRequest(first_token=message))

    def finish(self) -> None:
        """Closes the sending side: the stream ends once the router has heard and answered everything."""
        self._is_finishing = True
        self._actions.put(None)

    async def run(self) -> None:
        """Hands out answers until the stream ends or breaks."""
        error: HeadwayError = UnavailableError("The router ended its stream.", hint="Try again in a moment.")
        try:
            async with self._peers.dial(self.endpoint) as channel, self._watching(channel):
                stub: router_pb2_grpc.RouterServiceAsyncStub = router_pb2_grpc.RouterServiceStub(channel)
                async for answer in stub.Dispatch(self._outgoing(), metadata=self._peers.metadata):
                    self._take(answer)
                self.has_finished = self._is_finishing
        except grpc.aio.AioRpcError as fault:
            error = error_from_rpc(fault)
        finally:
            self._break(error)

    async def _outgoing(self) -> AsyncIterator[router_pb2.DispatchRequest]:
        while True:
            for action in await self._actions.take():
                if action is None:
                    return
                yield action

    @asynccontextmanager
    async def _watching(self, channel: grpc.aio.Channel) -> AsyncIterator[None]:
        watch = asyncio.create_task(self._watch(health_pb2_grpc.HealthStub(channel)), name=f"watch {self.endpoint}")
        try:
            yield
        finally:
            await end_tasks([watch])

    async def _watch(self, stub: health_pb2_grpc.HealthStub) -> None:
        """Gives up what waits whenever the router shows no sign of life; an answer to a request is one."""
        while True:
            await asyncio.sleep(_PROBE_EVERY_S)
            num_answers = self._num_answers
            if self._waiting and not await self._is_alive(stub) and self._num_answers == num_answers:
                log.warning("the router at %s does not answer; %d requests wait", self.endpoint, len(self._waiting))
                for asked in self._waiting.values():
                    if not asked.answer.done():
                        asked.answer.set_exception(_RouterSilentError())

    async def _is_alive(self, stub: health_pb2_grpc.HealthStub) -> bool:
        """Any answer will do. Where there is no connection the stream says so."""
        request = health_pb2.HealthCheckRequest()
        try:
            await stub.Check(request, metadata=self._peers.metadata, timeout=_PROBE_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        return True

    def _take(self, answer: router_pb2.DispatchResponse) -> None:
        self._num_answers += 1
        asked = self._waiting.get(answer.request_id)
        is_earlier = asked is not None and answer.attempt not in (0, asked.attempt)  # 0: older routers do not say
        if asked is None or asked.answer.done() or is_earlier:  # taken back by now, and the router hears of that
            return
        for _ in range(asked.num_releases_before - self._num_heard):
            self.unheard.popleft()
            self._num_heard += 1
        if answer.HasField("error"):
            asked.answer.set_exception(error_from_pb(answer.error))
        else:
            asked.answer.set_result(_lease_from_pb(answer.lease))

    def _break(self, error: HeadwayError) -> None:
        self.is_broken = True
        for asked in self._waiting.values():
            if not asked.answer.done():
                asked.answer.set_exception(_LinkBrokenError(error))
        self._actions.put(None)


class RouterLinks:
    """The router that decides at the moment, over one stream: the newest of them. Where that one breaks off or takes no
    notice of us and another stands by, the other is asked while the lease of the first may be one of a dead process.
    The stream to one that no longer decides stays open until all its leases are released.
    """

    def __init__(self, peers: Peers, *, gateway_id: str) -> None:
        self._peers = peers
        self._gateway_id = gateway_id
        self._current: RouterLink | None = None
        self._attempts = count(1)
        self._given_by: dict[str, RouterLink] = {}  # by id of a lease that is not released
        self._lost_s: dict[str, float] = {}  # when it was, by endpoint
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False

    async def route(self, request: PlaceRequest) -> Lease:
        """A place; where the router cannot be reached, whoever takes its place within two seconds is asked.

        Raises the HeadwayError with which the router refuses, or that there is none.
        """
        began_s, is_first = time.monotonic(), True
        while True:
            try:
                link = self._link()
            except UnavailableError as error:
                fault: HeadwayError = error
            else:
                try:
                    return await self._ask(link, request)
                except _LinkBrokenError as broken:
                    fault = broken.cause
                except _RouterSilentError:
                    self._lost_s[link.endpoint] = time.monotonic()
                    if not self._sound_routers():
                        raise
                    continue
            left_s = began_s + _AWAITED_S - time.monotonic()
            if left_s <= 0:
                raise fault
            if is_first:
                log.info("the router is asked again: %s", fault)
                await self._peers.refresh()
                is_first = False
            else:
                await self._peers.wait_for_change(timeout_s=min(left_s, _ASKED_EVERY_S))

    async def _ask(self, link: RouterLink, request: PlaceRequest) -> Lease:
        """The answer of the router there. An attempt that is given up is taken back, with the lease that it may have
        got by then, and no other attempt of the request."""
        message = _route_to_pb(request, gateway_id=self._gateway_id, attempt=next(self._attempts))
        try:
            lease = await link.route(message)
        except (asyncio.CancelledError, _RouterSilentError, _LinkBrokenError):
            self._say(link, _withdrawal_of(message))
            raise
        else:
            self._given_by[lease.lease_id] = link
            return lease
        finally:
            if link is not self._current:
                self._finish_unless_needed(link)

    def note_first_token(self, lease_id: str, *, ttft_s: float) -> None:
        """Returns at once; it is for the router that gave the lease, if that is still there."""
        link = self._given_by.get(lease_id)
        if link is not None and not link.is_broken:
            link.note_first_token(router_pb2.FirstToken(lease_id=lease_id, ttft_s=ttft_s))

    def release(self, release: Release) -> None:
        """Returns at once; it is for the router that gave the lease. What a stream that breaks takes along is said
        again on the next: a router that is new does not know the lease, and one that was only stuck must hear of it.
        """
        link = self._given_by.pop(release.lease_id, None)
        self._say(link, _release_to_pb(release))
        if link is not None and link is not self._current:
            self._finish_unless_needed(link)

    def _say(self, link: RouterLink | None, message: router_pb2.Release) -> None:
        """On this stream, or on another where it is none any more."""
        if link is None or link.is_broken:
            self._release([message])
        else:
            link.release(message)

    def _release(self, messages: Sequence[router_pb2.Release]) -> None:
        # One that is lost may only be late with its membership, and reads this when it goes on.
        link = self._link() if self._sound_routers() else self._current
        if link is None or link.is_broken:
            self._spawn(self._release_later(messages), name="release")
            return
        for message in messages:
            link.release(message)

    async def _release_later(self, messages: Sequence[router_pb2.Release]) -> None:
        await self._peers.wait_for_change(timeout_s=_LOOKS_EVERY_S)
        self._release(messages)

    async def close(self) -> None:
        """Waits until the router has heard of everything, or two seconds; it drops the leases of who is gone."""
        self._is_closing = True
        for link in {*self._given_by.values(), *filter(None, [self._current])}:
            link.finish()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_CLOSE_TIMEOUT_S)
            for task in late:
                task.cancel()

    def _sound_routers(self) -> list[Member]:
        """Those that are not lost, the newest first."""
        now_s = time.monotonic()
        self._lost_s = {endpoint: lost_s for endpoint, lost_s in self._lost_s.items() if now_s - lost_s < _LOST_FOR_S}
        return [member for member in self._peers.members("router") if member.endpoint not in self._lost_s]

    def _link(self) -> RouterLink:
        """To the newest that is not lost, or the newest if all are; UnavailableError where there is none."""
        sound = self._sound_routers()
        endpoint = (sound[0] if sound else self._peers.newest("router")).endpoint
        link = self._current
        if link is None or link.is_broken or link.endpoint != endpoint:
            if link is not None:
                self._finish_unless_needed(link)
            link = self._current = RouterLink(endpoint, self._peers)
            self._spawn(self._run(link), name=f"router {endpoint}")
        return link

    def _finish_unless_needed(self, link: RouterLink) -> None:
        if not link.is_asked and link not in self._given_by.values():
            link.finish()

    async def _run(self, link: RouterLink) -> None:
        await link.run()
        if not link.has_finished:
            self._lost_s[link.endpoint] = time.monotonic()
        if link.unheard and not link.has_finished and not self._is_closing:
            self._release(list(link.unheard))

    def _spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Not in the context of the request that happens to come first."""
        task = asyncio.create_task(work, name=name, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _route_to_pb(request: PlaceRequest, *, gateway_id: str, attempt: int) -> router_pb2.Route:
    return router_pb2.Route(
        request_id=request.request_id,
        attempt=attempt,
        model=request.model,
        gateway_id=gateway_id,
        num_prompt_tokens=request.num_prompt_tokens,
        max_output_tokens=request.max_output_tokens,
        block_hashes=request.block_hashes,
        slo=slo_to_pb(request.slo),
        excluded_worker_ids=request.excluded_worker_ids,
        resumed=request.resumed,
        preferred_worker_id=request.preferred_worker_id,
        stays=request.stays,
        priority=request.priority,
        num_sequences=request.num_sequences,
        traceparent=request.traceparent,
        elapsed_s=max(0.0, time.monotonic() - request.arrived_s),
        tenant=request.tenant,
        tenant_weight=request.tenant_weight,
        adapter=request.adapter,
    )


def _withdrawal_of(message: router_pb2.Route) -> router_pb2.Release:
    return router_pb2.Release(
        gateway_id=message.gateway_id,
        request_id=message.request_id,
        attempt=message.attempt,
        outcome=LeaseOutcome.CANCELLED,
    )


def _release_to_pb(release: Release) -> router_pb2.Release:
    return router_pb2.Release(
        lease_id=release.lease_id,
        outcome=release.outcome,
        ttft_s=release.ttft_s,
        tpot_s=release.tpot_s,
        e2e_s=release.e2e_s,
        usage=common_pb2.Usage(prompt_tokens=release.num_prompt_tokens, completion_tokens=release.num_output_tokens),
        slo=slo_to_pb(release.slo),
    )


def _lease_from_pb(message: router_pb2.Lease) -> Lease:
    return Lease(
        lease_id=message.lease_id,
        worker_id=message.worker_id,
        endpoint=message.endpoint,
        reason=message.reason,
        is_sole_replica=message.is_foregone,
        decode_target=from_pb(message.decode_target, MoveTarget) if message.HasField("decode_target") else None,
        source=from_pb(message.prefix_source, PrefixSource) if message.HasField("prefix_source") else None,
        slack_s=message.slack_s if message.HasField("slack_s") else math.inf,
    )
