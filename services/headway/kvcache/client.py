"""A client of workers for the KV-cache service, in core types."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeVar

import grpc

from headway.core.cache_sharding import CacheSharding
from headway.core.kv import Holder, KvUsage, RequestUsage, SequenceBlocks
from headway.core.load import LoadReport
from headway.core.move import MoveTarget, RequestMove
from headway.kvcache.feed import BlockEvent, BlockUpdate, Position
from headway.kvcache.pins import Home
from headway.kvcache.prefix import Prefix
from headway.rpc.closing import unavailable_when_closed
from headway.rpc.convert import from_pb, to_pb
from headway.rpc.convert.load import loads_from_pb
from headway.rpc.peers import Peers
from headway.rpc.status import error_from_rpc
from headway.store.membership import Member
from headway.v1 import worker_pb2, worker_pb2_grpc

R = TypeVar("R")

_TIMEOUT_S = 2.0
_PIN_TIMEOUT_S = 120.0
_MOVE_TIMEOUT_S = 65.0


class CacheClient:
    """A client of the workers' caches. Its streams have channels of their own, and end with a HeadwayError when they
    break.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def watch_blocks(
        self, endpoint: str, *, after: Sequence[Position]
    ) -> AsyncGenerator[tuple[str, BlockUpdate], None]:
        """Yields what changes in the caches of a worker's models, each change with the model's name.

        Args:
            after: the last events that the reader knows, one for each cache, in any order.
        """
        request = worker_pb2.WatchBlocksRequest(
            others=[
                worker_pb2.BlockPosition(epoch=position.epoch, after_sequence_number=position.sequence_number)
                for position in after
            ]
        )
        async with self._peers.dial(endpoint) as channel:
            stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
            try:
                async for message in stub.WatchBlocks(request, metadata=self._peers.metadata):
                    yield message.model, _update_from_pb(message)
            except grpc.aio.AioRpcError as error:
                raise error_from_rpc(error) from None

    async def watch_load(self, endpoint: str, *, interval_ms: int) -> AsyncGenerator[list[LoadReport], None]:
        request = worker_pb2.WatchLoadRequest(interval_ms=interval_ms)
        async with self._peers.dial(endpoint) as channel:
            stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
            try:
                async for message in stub.WatchLoad(request, metadata=self._peers.metadata):
                    yield loads_from_pb(message)
            except grpc.aio.AioRpcError as error:
                raise error_from_rpc(error) from None

    async def usages(self, endpoint: str) -> list[KvUsage]:
        """Returns how the blocks of each of a worker's models are used."""
        request = worker_pb2.GetBlocksRequest()
        response = await self._ask(endpoint, lambda stub, **options: stub.GetBlocks(request, **options))
        return [from_pb(usage, KvUsage) for usage in response.usages or (response.usage,)]

    async def describe(self, member: Member, request_id: str) -> RequestUsage:
        """Returns what a worker holds of a request; NotFoundError where it holds nothing."""
        request = worker_pb2.GetBlockTablesRequest(request_id=request_id)
        response = await self._ask(member.endpoint, lambda stub, **options: stub.GetBlockTables(request, **options))
        return RequestUsage(
            worker_id=member.member_id,
            model=response.model,
            block_size=response.block_size,
            sequences=tuple(from_pb(sequence, SequenceBlocks) for sequence in response.sequences),
        )

    async def move(self, source: Member, request_id: str, *, target: MoveTarget) -> RequestMove:
        """Has a worker move a request's sequences; NotFoundError where it runs none."""
        request = worker_pb2.MoveSequencesRequest(request_id=request_id, target=to_pb(target, worker_pb2.MoveTarget))
        response = await self._ask(
            source.endpoint, lambda stub, **options: stub.MoveSequences(request, **options), timeout_s=_MOVE_TIMEOUT_S
        )
        return RequestMove(
            worker_id=source.member_id,
            num_sequences=response.num_sequences,
            num_blocks=response.num_blocks,
            num_bytes=response.num_bytes,
            recompute_reason=response.recompute_reason,
        )

    async def sharding(self, endpoint: str) -> CacheSharding:
        """Returns how a worker's cache lies on its group."""
        request = worker_pb2.GetShardingRequest()
        response = await self._ask(endpoint, lambda stub, **options: stub.GetSharding(request, **options))
        return from_pb(response.sharding, CacheSharding)

    async def set_sharding(self, endpoint: str, weights: Sequence[float], *, epoch: str) -> None:
        """Tells a leader how its shards share blocks."""
        request = worker_pb2.SetShardingRequest(epoch=epoch, weights=weights)
        await self._ask(endpoint, lambda stub, **options: stub.SetSharding(request, **options))

    async def set_pins(self, home: Home, prefixes: Sequence[Prefix]) -> list[Holder]:
        """Tells a worker what to keep; returns when it has computed what it did not have."""
        pins = [worker_pb2.Pin(name=prefix.name, token_ids=prefix.token_ids) for prefix in prefixes]
        request = worker_pb2.SetPinsRequest(model=home.model, pins=pins)
        response = await self._ask(
            home.endpoint, lambda stub, **options: stub.SetPins(request, **options), timeout_s=_PIN_TIMEOUT_S
        )
        return [
            Holder(worker_id=home.worker_id, num_blocks=state.num_blocks, fault=state.fault)
            for state in response.states
        ]

    async def _ask(self, endpoint: str, method: Callable[..., Awaitable[R]], *, timeout_s: float = _TIMEOUT_S) -> R:
        stub = worker_pb2_grpc.WorkerServiceStub(self._peers.channel(endpoint))
        try:
            with unavailable_when_closed(f"The worker at {endpoint}"):
                return await method(stub, metadata=self._peers.metadata, timeout=timeout_s)
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
