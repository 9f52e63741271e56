"""A real gRPC router without a policy: the first worker that is not excluded."""

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any

import grpc

from headway.core.errors import HeadwayError, UnavailableError
from headway.rpc.interceptors import CallInterceptor
from headway.v1 import router_pb2, router_pb2_grpc


@dataclass
class ScriptedRouter(router_pb2_grpc.RouterServiceServicer):
    """Keeps books of what it was asked.

    Attributes:
        workers: endpoint by worker id, in order of preference.
        routed: requests, in order.
        released: outcomes by lease id; a lease released twice shows twice.
        metadata: of the last Route call.
        fault: raised by Route.
        delay_s: before Route answers.
    """

    workers: dict[str, str] = field(default_factory=dict)
    routed: list[router_pb2.RouteRequest] = field(default_factory=list)
    leased: list[str] = field(default_factory=list)
    released: list[router_pb2.ReleaseRequest] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    fault: HeadwayError | None = None
    delay_s: float = 0.0
    _numbers: Any = field(default_factory=itertools.count)

    @property
    def num_open(self) -> int:
        return len(self.leased) - len(self.released)

    async def Route(  # noqa: N802 - the method's name in the protocol
        self, request: router_pb2.RouteRequest, context: Any
    ) -> router_pb2.RouteResponse:
        self.routed.append(request)
        self.metadata = dict(context.invocation_metadata())
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.fault is not None:
            raise self.fault
        for worker_id, endpoint in self.workers.items():
            if worker_id not in request.excluded_worker_ids:
                lease_id = f"lease-{next(self._numbers)}"
                self.leased.append(lease_id)
                return router_pb2.RouteResponse(
                    lease_id=lease_id, worker_id=worker_id, endpoint=endpoint, reason="the first one"
                )
        raise UnavailableError("No worker serves the model just now.", retry_after_s=1.0)

    async def Release(  # noqa: N802
        self, request: router_pb2.ReleaseRequest, context: Any
    ) -> router_pb2.ReleaseResponse:
        self.released.append(request)
        return router_pb2.ReleaseResponse()

    async def GetFleet(  # noqa: N802
        self, request: router_pb2.GetFleetRequest, context: Any
    ) -> router_pb2.GetFleetResponse:
        return router_pb2.GetFleetResponse(num_in_flight=self.num_open)


async def start(router: ScriptedRouter) -> tuple[grpc.aio.Server, int]:
    server = grpc.aio.server(interceptors=[CallInterceptor()])
    router_pb2_grpc.add_RouterServiceServicer_to_server(router, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port
