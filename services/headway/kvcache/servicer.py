"""KvCacheService over gRPC: it converts messages, calls the service, and converts the results."""

from headway.kvcache.service import KvCacheService
from headway.rpc.convert import to_pb
from headway.rpc.interceptors import Context
from headway.v1 import common_pb2, kvcache_pb2, kvcache_pb2_grpc


class KvCacheServicer(kvcache_pb2_grpc.KvCacheServiceServicer):
    """The servicer of KvCacheService."""

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

    async def GetUsage(self, request: kvcache_pb2.GetUsageRequest, context: Context) -> kvcache_pb2.GetUsageResponse:
        usages = await self._service.usage()
        return kvcache_pb2.GetUsageResponse(workers=[to_pb(usage, common_pb2.KvUsage) for usage in usages])

    async def DescribeRequest(
        self, request: kvcache_pb2.DescribeRequestRequest, context: Context
    ) -> kvcache_pb2.DescribeRequestResponse:
        parts = await self._service.describe_request(request.request_id)
        return kvcache_pb2.DescribeRequestResponse(parts=[to_pb(part, kvcache_pb2.RequestUsage) for part in parts])

    async def MoveRequest(
        self, request: kvcache_pb2.MoveRequestRequest, context: Context
    ) -> kvcache_pb2.MoveRequestResponse:
        moves = await self._service.move_request(request.request_id, worker_id=request.worker_id)
        return kvcache_pb2.MoveRequestResponse(moves=[to_pb(move, kvcache_pb2.RequestMove) for move in moves])

    async def PinPrefix(self, request: kvcache_pb2.PinPrefixRequest, context: Context) -> kvcache_pb2.PinPrefixResponse:
        prefix = await self._service.pin(name=request.name, model=request.model, token_ids=request.token_ids)
        return kvcache_pb2.PinPrefixResponse(prefix=to_pb(prefix, kvcache_pb2.PinnedPrefix))

    async def UnpinPrefix(
        self, request: kvcache_pb2.UnpinPrefixRequest, context: Context
    ) -> kvcache_pb2.UnpinPrefixResponse:
        await self._service.pins.unpin(request.name)
        return kvcache_pb2.UnpinPrefixResponse()

    async def ListPrefixes(
        self, request: kvcache_pb2.ListPrefixesRequest, context: Context
    ) -> kvcache_pb2.ListPrefixesResponse:
        prefixes = [to_pb(prefix, kvcache_pb2.PinnedPrefix) for prefix in self._service.pins.all()]
        return kvcache_pb2.ListPrefixesResponse(prefixes=prefixes)
