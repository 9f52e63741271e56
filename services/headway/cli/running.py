"""A running stack: its status, and the endpoints of its services."""

import asyncio
from pathlib import Path

from headway.cli.calls import calling
from headway.cli.process import is_alive
from headway.client import Client, ClusterStatus
from headway.client.stack import Stack, find_stack
from headway.client.status import ControllerStatus
from headway.core.errors import UnavailableError
from headway.rpc.convert import from_pb
from headway.v1 import controller_pb2, controller_pb2_grpc

_TIMEOUT_S = 5.0


def cluster_status(endpoint: str | None, *, api_key: str | None, state_dir: Path | None) -> ClusterStatus:
    """From the gateway; of a stack on this machine whose gateway is away, what the controller knows."""
    try:
        with Client(endpoint, api_key=api_key, state_dir=state_dir, timeout_s=_TIMEOUT_S) as client:
            return client.status()
    except UnavailableError:
        if endpoint is not None:
            raise
    return ClusterStatus(controller=asyncio.run(_controller_status(find_stack(state_dir))))


def endpoint_of(kind: str, status: ClusterStatus) -> str:
    """host:port of a service, as the controller knows it; UnavailableError where none runs."""
    for process in status.controller.processes:
        if process.kind == kind and process.endpoint:
            return process.endpoint
    raise UnavailableError(f"No {kind} is running.", hint="`headway status` shows its state; try again in a moment.")


async def _controller_status(stack: Stack) -> ControllerStatus:
    if not is_alive(stack.supervisor):
        raise UnavailableError(
            f"The stack at {stack.http_url} has lost its supervisor and does not answer.",
            hint="`headway down` ends what is left of it.",
        )
    if not stack.controller_endpoint:
        return ControllerStatus(waiting_for="the controller")
    async with calling(stack.controller_endpoint, controller_pb2_grpc.ControllerServiceStub) as controller:
        response = await controller.GetStatus(controller_pb2.GetStatusRequest(), timeout=_TIMEOUT_S)
    return from_pb(response, ControllerStatus)
