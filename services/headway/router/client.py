"""Clients of workers and of the KV-cache service for the router, in core types."""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping

import grpc

from headway.core.errors import HeadwayError
from headway.core.load import LoadReport
from headway.router.request import RoutingRequest
from headway.rpc.closing import unavailable_when_closed
from headway.rpc.convert.load import loads_from_pb
from headway.rpc.peers import Peers
from headway.rpc.status import error_from_rpc
from headway.v1 import kvcache_pb2, kvcache_pb2_grpc, worker_pb2, worker_pb2_grpc

log = logging.getLogger(__name__)

_SKIP_AFTER_FAULT_S = 1.0


class LoadReportClient:
    """Load reports of workers. A stream ends with a HeadwayError when it breaks."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def watch_load(self, endpoint: str, *, interval_ms: int) -> AsyncGenerator[list[LoadReport], None]:
        request = worker_pb2.WatchLoadRequest(interval_ms=interval_ms)
        async with self._peers.dial(endpoint) as channel:
            stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
            try:
                async for message in stub.WatchLoad(request, metadata=self._peers.metadata):
                    yield loads_from_pb(message)
            except grpc.aio.AioRpcError as error:
                raise error_from_rpc(error) from None


class PrefixClient:
    """Asks the KV-cache service who holds how much of a prompt. Routing goes on without an answer if it is late."""

    def __init__(self, peers: Peers, *, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        self._peers = peers
        self._timeout_s = timeout_s
        self._clock = clock
        self._skip_until_s = 0.0

    async def lookup(self, request: RoutingRequest) -> Mapping[str, int]:
        """Leading blocks of the prompt by worker id; nothing where the service is away or slow.

        After a fault it is left alone for a second, lest every request wait for it in vain.
        """
        if self._clock() < self._skip_until_s:
            return {}
        try:
            stub: kvcache_pb2_grpc.KvCacheServiceAsyncStub = self._peers.stub(
                "kvcache", kvcache_pb2_grpc.KvCacheServiceStub
            )
            with unavailable_when_closed("The kvcache"):
                response = await stub.LookupPrefix(
                    kvcache_pb2.LookupPrefixRequest(model=request.model, block_hashes=request.block_hashes),
                    metadata=self._peers.metadata,
                    timeout=self._timeout_s,
                )
        except (grpc.aio.AioRpcError, HeadwayError) as error:
            log.info("routing without prefixes for a second: %s", error)
            self._skip_until_s = self._clock() + _SKIP_AFTER_FAULT_S
            return {}
        return {match.worker_id: match.num_blocks for match in response.matches}
