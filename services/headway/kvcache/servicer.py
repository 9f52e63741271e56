"""KvCacheService over gRPC."""

from headway.kvcache.service import KvCacheService
from headway.rpc.convert import to_pb
from headway.rpc.interceptors import Context
from headway.v1 import kvcache_pb2, kvcache_pb2_grpc


class KvCacheServicer(kvcache_pb2_grpc.KvCacheServiceServicer):
    """Converts, calls, converts."""

    def __init__(self, service: KvCacheService) -> None:
        self._service = service

    async def LookupPrefix(
        self, request: kvcache_pb2.LookupPrefixRequest, context: Context
    ) -> kvcache_pb2.LookupPrefixResponse:
        matches = self._service.lookup(request.model, request.block_hashes)
        return kvcache_pb2.LookupPrefixResponse(
            matches=[
                kvcache_pb2.PrefixMatch(worker_id=worker_id, num_blocks=num_blocks)
                for worker_id, num_blocks in matches.items()
            ]
        )

    async def GetCapacity(
        self, request: kvcache_pb2.GetCapacityRequest, context: Context
    ) -> kvcache_pb2.GetCapacityResponse:
        return to_pb(self._service.capacity(), kvcache_pb2.GetCapacityResponse)
