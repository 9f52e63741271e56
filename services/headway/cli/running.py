"""A running stack: its status, and the endpoints of its services."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from headway.cli.calls import calling, calling_controller
from headway.cli.process import is_alive
from headway.client import Client, ClusterStatus
from headway.client.access import find_access
from headway.client.stack import find_stack
from headway.client.status import ControllerStatus
from headway.core.errors import UnavailableError
from headway.rpc.convert import from_pb
from headway.v1 import controller_pb2, kvcache_pb2_grpc

_TIMEOUT_S = 5.0


def cluster_status(endpoint: str | None, *, api_key: str | None, state_dir: Path | None) -> ClusterStatus:
    """Status from the gateway; for a stack on this machine whose gateway is away, what the controller knows."""
    try:
        with Client(endpoint, api_key=api_key, state_dir=state_dir, timeout_s=_TIMEOUT_S) as client:
            return client.status()
    except UnavailableError:
        if endpoint is not None:
            raise
    return ClusterStatus(controller=asyncio.run(_controller_status(state_dir)))


def endpoint_of(kind: str, status: ClusterStatus) -> str:
    """host:port of a service, as the controller knows it; UnavailableError where none runs."""
    for process in status.controller.processes:
        if process.kind == kind and process.endpoint:
            return process.endpoint
    raise UnavailableError(f"No {kind} is running.", hint="`headway status` shows its state; try again in a moment.")


def calling_kvcache(
    state_dir: Path | None, *, api_key: str | None
) -> "AbstractAsyncContextManager[kvcache_pb2_grpc.KvCacheServiceAsyncStub]":
    """Opens a stub on the KV-cache service of a running stack."""
    with Client(state_dir=state_dir, api_key=api_key) as client:
        endpoint = endpoint_of("kvcache", client.status())
    return calling(endpoint, kvcache_pb2_grpc.KvCacheServiceStub, access=find_access(state_dir))


async def _controller_status(state_dir: Path | None) -> ControllerStatus:
    stack = find_stack(state_dir)
    if not is_alive(stack.supervisor):
        raise UnavailableError(
            f"The stack at {stack.http_url} has lost its supervisor and does not answer.",
            hint="`headway down` ends what is left of it.",
        )
    if not stack.controller_endpoint:
        return ControllerStatus(waiting_for="the controller")
    async with calling_controller(state_dir) as controller:
        response = await controller.GetStatus(controller_pb2.GetStatusRequest(), timeout=_TIMEOUT_S)
    return from_pb(response, ControllerStatus)
