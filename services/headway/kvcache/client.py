"""What the KV-cache service reads from workers, as core types."""

from collections.abc import AsyncGenerator

import grpc

from headway.core.load import LoadReport
from headway.kvcache.feed import BlockEvent, BlockUpdate, Position
from headway.rpc.convert.load import load_from_pb
from headway.rpc.peers import Peers
from headway.rpc.status import error_from_rpc
from headway.v1 import worker_pb2, worker_pb2_grpc


class WorkerClient:
    """The streams of workers, each over a channel of its own. They end with a HeadwayError when they break."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def watch_blocks(self, endpoint: str, *, after: Position) -> AsyncGenerator[BlockUpdate, None]:
        request = worker_pb2.WatchBlocksRequest(epoch=after.epoch, after_sequence_number=after.sequence_number)
        async with self._peers.dial(endpoint) as channel:
            stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
            try:
                async for message in stub.WatchBlocks(request, metadata=self._peers.metadata):
                    yield _update_from_pb(message)
            except grpc.aio.AioRpcError as error:
                raise error_from_rpc(error) from None

    async def watch_load(self, endpoint: str, *, interval_ms: int) -> AsyncGenerator[LoadReport, None]:
        request = worker_pb2.WatchLoadRequest(interval_ms=interval_ms)
        async with self._peers.dial(endpoint) as channel:
            stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
            try:
                async for message in stub.WatchLoad(request, metadata=self._peers.metadata):
                    yield load_from_pb(message)
            except grpc.aio.AioRpcError as error:
                raise error_from_rpc(error) from None


def _update_from_pb(message: worker_pb2.WatchBlocksResponse) -> BlockUpdate:
    return BlockUpdate(
        epoch=message.epoch,
        sequence_number=message.sequence_number,
        snapshot=message.snapshot,
        events=tuple(
            BlockEvent(event.block_hash, event.kind == worker_pb2.BlockEvent.KIND_STORED) for event in message.events
        ),
    )
