"""A controller of a release of processes, as operators command it."""

from typing import Any

import grpc

from headway.v1 import controller_pb2, controller_pb2_grpc, planner_pb2
from tests.cluster.pod import Pod
from tests.cluster.release import Release

_TIMEOUT_S = 20


class Controller:
    """Its service, with the release's own token."""

    def __init__(self, release: Release, pod: Pod) -> None:
        self._address = f"{pod.address}:9000"
        self._metadata = (("authorization", f"Bearer {release.secret('headway-auth')['auth-token']}"),)

    def plan(self) -> planner_pb2.ServingPlan:
        """The desired one."""
        plan: planner_pb2.ServingPlan = self._call("GetPlan", controller_pb2.GetPlanRequest()).plan
        return plan

    def apply(self, plan: planner_pb2.ServingPlan) -> None:
        self._call("ApplyPlan", controller_pb2.ApplyPlanRequest(plan=plan))

    def is_ready(self) -> bool:
        """Whether all is loaded that it desires. One that stands by has no such method."""
        try:
            return bool(self._call("GetStatus", controller_pb2.GetStatusRequest()).ready)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return False
            raise

    def members(self) -> set[str]:
        """The processes that it knows of."""
        return {each.name for each in self._call("GetStatus", controller_pb2.GetStatusRequest()).processes}

    def _call(self, method: str, request: Any) -> Any:
        with grpc.insecure_channel(self._address) as channel:
            stub = controller_pb2_grpc.ControllerServiceStub(channel)
            return getattr(stub, method)(request, timeout=_TIMEOUT_S, metadata=self._metadata, wait_for_ready=True)
