"""A client of other workers that speaks in core types."""

from collections.abc import AsyncGenerator, Callable, Sequence

import grpc

from headway.core.errors import UnavailableError
from headway.rpc.convert import from_pb
from headway.rpc.peers import Peers
from headway.rpc.status import error_from_rpc
from headway.v1 import worker_pb2, worker_pb2_grpc
from headway.worker.transfer.block import BlockContent
from headway.worker.transfer.fetch import Fetched
from headway.worker.transfer.layout import BlockLayout
from headway.worker.transfer.parts import BlockPart, Joiner

_TIMEOUT_S = 30.0


class PeerWorkerClient:
    """A client of the other workers, for block transfer and migration.

    Args:
        own_endpoint: gives host:port at which they reach this worker.
    """

    def __init__(self, peers: Peers, *, own_endpoint: Callable[[], str]) -> None:
        self._peers = peers
        self._own_endpoint = own_endpoint

    def blocks_at(self, endpoint: str, *, block_bytes: int) -> "RemoteBlocks":
        """Another worker's blocks, which have as many bytes as ours if their layout is ours."""
        return RemoteBlocks(self._peers, endpoint, block_bytes=block_bytes)

    async def fetch_from_here(
        self, endpoint: str, *, model: str, chains: Sequence[Sequence[bytes]], num_sequences: int
    ) -> Fetched:
        """Has another worker fetch blocks of this one; see `fetch`."""
        request = worker_pb2.FetchBlocksRequest(
            model=model,
            source_endpoint=self._own_endpoint(),
            chains=[worker_pb2.BlockChain(block_hashes=chain) for chain in chains],
            num_sequences=num_sequences,
        )
        async with self._peers.dial(endpoint) as channel:
            stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
            try:
                response = await stub.FetchBlocks(request, metadata=self._peers.metadata, timeout=_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                raise error_from_rpc(error) from None
        return Fetched(response.num_blocks, response.num_bytes)


class RemoteBlocks:
    """A `BlockSource`: the blocks of the worker at an endpoint, over gRPC."""

    def __init__(self, peers: Peers, endpoint: str, *, block_bytes: int) -> None:
        self._peers = peers
        self._endpoint = endpoint
        self._block_bytes = block_bytes

    async def read(self, names: Sequence[bytes], *, layout: BlockLayout) -> AsyncGenerator[list[BlockContent], None]:
        """Reads blocks from another worker; see `BlockSource.read`."""
        request = worker_pb2.ReadBlocksRequest(model=layout.model, block_hashes=names)
        joiner = Joiner(self._block_bytes)
        is_checked = False
        async with self._peers.dial(self._endpoint) as channel:
            stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
            try:
                async for message in stub.ReadBlocks(request, metadata=self._peers.metadata, timeout=_TIMEOUT_S):
                    if not is_checked:
                        layout.check_equal(from_pb(message.layout, BlockLayout))
                        is_checked = True
                    parts = (BlockPart(part.block_hash, part.offset_bytes, part.content) for part in message.parts)
                    if blocks := joiner.join(parts):
                        yield blocks
            except grpc.aio.AioRpcError as error:
                raise error_from_rpc(error) from None
        if not is_checked:
            raise UnavailableError(f"The worker at {self._endpoint} sent nothing.", hint="Try again in a moment.")
