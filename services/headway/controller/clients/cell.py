"""A client of the cells."""

from headway.controller.clients.call import calling
from headway.core.errors import UnavailableError
from headway.rpc.peers import Peers
from headway.v1 import cell_pb2, cell_pb2_grpc

_CALL_TIMEOUT_S = 5.0


class CellClient:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def end_run(self, worker_id: str, *, pid: int) -> None:
        """Has a worker's run ended by its cell, whose name is the worker's without the number at its end.

        UnavailableError where that is away, and the worker with it.
        """
        cell_id = worker_id.rpartition("-")[0]
        cell = next((member for member in self._peers.members("cell") if member.member_id == cell_id), None)
        if cell is None:
            raise UnavailableError(f"There is no cell {cell_id}.", hint="Its pod is being started.", retry_after_s=1.0)
        async with calling(self._peers, cell.endpoint, cell_pb2_grpc.CellServiceStub) as stub:
            request = cell_pb2.EndRunRequest(worker_id=worker_id, pid=pid)
            await stub.EndRun(request, timeout=_CALL_TIMEOUT_S, metadata=self._peers.metadata)
