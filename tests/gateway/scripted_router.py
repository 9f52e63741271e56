"""A real gRPC router without a policy: the preferred worker, or the first that is not excluded."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from headway.core.errors import HeadwayError, UnavailableError
from headway.rpc.host import SERVER_OPTIONS
from headway.rpc.interceptors import CallInterceptor
from headway.rpc.status import error_to_pb
from headway.v1 import router_pb2, router_pb2_grpc, worker_pb2


@dataclass
class ScriptedRouter(router_pb2_grpc.RouterServiceServicer):
    """Records what it was asked.

    Attributes:
        workers: endpoint by worker id, in order of preference.
        routed: requests, in order.
        first_tokens: of requests with objectives.
        released: outcomes by lease id; a lease released twice on one stream shows twice. On another stream a gateway
            says again what it has said last, when the one before has broken off.
        withdrawn: attempts that were taken back before they had heard an answer, with the lease that they may have got.
        num_streams, num_ended: that gateways opened, and those of them that are over.
        fault, resumed_fault: the answer to all requests, and to those that have been at a worker before.
        delay_s: before each answer.
        is_sole_replica: what leases say.
        decode_worker_id: where the sequences of fresh requests are to go on; empty: they stay.
        source: who holds more of their prompts.
        slack_s: what leases say.
        lease_prefix: of their ids, which are unique among all routers.
    """

    workers: dict[str, str] = field(default_factory=dict)
    routed: list[router_pb2.Route] = field(default_factory=list)
    leased: list[str] = field(default_factory=list)
    first_tokens: list[router_pb2.FirstToken] = field(default_factory=list)
    released: list[router_pb2.Release] = field(default_factory=list)
    withdrawn: list[router_pb2.Release] = field(default_factory=list)
    num_streams: int = 0
    num_ended: int = 0
    fault: HeadwayError | None = None
    resumed_fault: HeadwayError | None = None
    delay_s: float = 0.0
    is_sole_replica: bool = False
    decode_worker_id: str = ""
    source: worker_pb2.PrefixSource | None = None
    slack_s: float | None = None
    lease_prefix: str = "lease"
    _answering: dict[tuple[str, int], asyncio.Task[None]] = field(default_factory=dict)  # by request id and attempt
    _lease_ids: dict[tuple[str, int], str] = field(default_factory=dict)
    _released_on: dict[str, int] = field(default_factory=dict)  # the stream's number by lease id
    _numbers: Any = field(default_factory=itertools.count)

    @property
    def num_open(self) -> int:
        return len(self.leased) - len(self.released)

    async def Dispatch(  # noqa: N802 - the method's name in the protocol
        self, request_iterator: AsyncIterator[router_pb2.DispatchRequest], context: Any
    ) -> AsyncIterator[router_pb2.DispatchResponse]:
        self.num_streams += 1
        stream = self.num_streams
        answers: asyncio.Queue[router_pb2.DispatchResponse | None] = asyncio.Queue()
        reader = asyncio.create_task(self._read(request_iterator, answers, stream))
        reader.add_done_callback(lambda _: answers.put_nowait(None))
        try:
            while (answer := await answers.get()) is not None:
                yield answer
        finally:
            self.num_ended += 1
            reader.cancel()

    async def _read(
        self,
        requests: AsyncIterator[router_pb2.DispatchRequest],
        answers: "asyncio.Queue[router_pb2.DispatchResponse | None]",
        stream: int,
    ) -> None:
        async for message in requests:
            if message.HasField("release"):
                self._release(message.release, stream)
                continue
            if message.HasField("first_token"):
                self.first_tokens.append(message.first_token)
                continue
            self.routed.append(message.route)
            answering = asyncio.create_task(self._answer(message.route, answers))
            self._answering[message.route.request_id, message.route.attempt] = answering

    async def _answer(
        self, request: router_pb2.Route, answers: "asyncio.Queue[router_pb2.DispatchResponse | None]"
    ) -> None:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        answer = router_pb2.DispatchResponse(request_id=request.request_id, attempt=request.attempt)
        try:
            answer.lease.CopyFrom(self._lease(request))
        except HeadwayError as error:
            answer.error.CopyFrom(error_to_pb(error))
        answers.put_nowait(answer)

    def _lease(self, request: router_pb2.Route) -> router_pb2.Lease:
        if self.fault is not None:
            raise self.fault
        if self.resumed_fault is not None and request.resumed:
            raise self.resumed_fault
        preferred = request.preferred_worker_id
        for worker_id, endpoint in sorted(self.workers.items(), key=lambda worker: worker[0] != preferred):
            if worker_id not in request.excluded_worker_ids:
                lease_id = f"{self.lease_prefix}-{next(self._numbers)}"
                self._lease_ids[request.request_id, request.attempt] = lease_id
                self.leased.append(lease_id)
                target = None
                if self.decode_worker_id and not (preferred or request.stays):
                    decoder = self.decode_worker_id
                    target = worker_pb2.MoveTarget(worker_id=decoder, endpoint=self.workers[decoder])
                return router_pb2.Lease(
                    decode_target=target,
                    prefix_source=self.source,
                    lease_id=lease_id,
                    worker_id=worker_id,
                    endpoint=endpoint,
                    reason="the first one",
                    is_foregone=self.is_sole_replica,
                    slack_s=self.slack_s,
                )
        raise UnavailableError("No worker serves the model just now.", retry_after_s=1.0)

    def _release(self, release: router_pb2.Release, stream: int) -> None:
        if not release.lease_id:
            self.withdrawn.append(release)
            asked = release.request_id, release.attempt
            if (answering := self._answering.get(asked)) is not None:
                answering.cancel()
            if (lease_id := self._lease_ids.get(asked)) is None:
                return
            release = router_pb2.Release(lease_id=lease_id, outcome=release.outcome)
        if self._released_on.setdefault(release.lease_id, stream) == stream:
            self.released.append(release)

    async def GetFleet(  # noqa: N802
        self, request: router_pb2.GetFleetRequest, context: Any
    ) -> router_pb2.GetFleetResponse:
        return router_pb2.GetFleetResponse(num_in_flight=self.num_open)


async def start(router: ScriptedRouter) -> tuple[grpc.aio.Server, int]:
    server = grpc.aio.server(interceptors=[CallInterceptor()], options=SERVER_OPTIONS)
    router_pb2_grpc.add_RouterServiceServicer_to_server(router, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port
