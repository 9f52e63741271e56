"""A client of the profiler."""

from headway.controller.clients.call import calling, endpoint_of
from headway.core.model import ModelSpec
from headway.rpc.convert import to_pb
from headway.rpc.peers import Peers
from headway.v1 import common_pb2, profiler_pb2, profiler_pb2_grpc

_IMPORT_TIMEOUT_S = 60.0


class ProfilerClient:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def take_in(self, content: bytes, *, hardware: str) -> None:
        """Returns when the profiles of a file are stored, as `headway profile import` stores them."""
        request = profiler_pb2.ImportProfilesRequest(content=content, hardware=hardware)
        endpoint = endpoint_of(self._peers, "profiler")
        async with calling(self._peers, endpoint, profiler_pb2_grpc.ProfilerServiceStub) as stub:
            await stub.ImportProfiles(request, timeout=_IMPORT_TIMEOUT_S, metadata=self._peers.metadata)

    async def profile(self, spec: ModelSpec, *, worker_id: str, model: str, beside_others: bool) -> None:
        """Returns when the profile of the model on the worker's hardware is stored; see `ProfileModelRequest`."""
        request = profiler_pb2.ProfileModelRequest(
            spec=to_pb(spec, common_pb2.ModelSpec), worker_id=worker_id, model=model, beside_others=beside_others
        )
        endpoint = endpoint_of(self._peers, "profiler")
        async with calling(self._peers, endpoint, profiler_pb2_grpc.ProfilerServiceStub) as stub:
            async for _ in stub.ProfileModel(request, metadata=self._peers.metadata):
                pass
