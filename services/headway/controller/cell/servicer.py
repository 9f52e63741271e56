"""CellService over gRPC: it converts messages and calls the supervisor."""

from headway.controller.supervisor import Supervisor
from headway.core.errors import NotFoundError
from headway.rpc.interceptors import Context
from headway.v1 import cell_pb2, cell_pb2_grpc


class CellServicer(cell_pb2_grpc.CellServiceServicer):
    """The servicer of CellService."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def EndRun(self, request: cell_pb2.EndRunRequest, context: Context) -> cell_pb2.EndRunResponse:
        if request.worker_id not in self._supervisor.processes:
            raise NotFoundError(f"There is no {request.worker_id} here.", field="worker_id")
        self._supervisor.end_run(request.worker_id, pid=request.pid)
        return cell_pb2.EndRunResponse()
