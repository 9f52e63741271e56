"""Waiting until a stack serves."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from headway.cli.calls import calling_controller
from headway.client.stack import Stack, read_stack
from headway.core.errors import DeadlineExceededError, UnavailableError
from headway.core.plan.serving import ServingPlan
from headway.rpc.convert import from_pb
from headway.rpc.status import error_from_pb
from headway.v1 import controller_pb2

_POLL_EVERY_S = 0.2
_CALL_TIMEOUT_S = 2.0
_GATEWAY_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Step:
    """Progress of start-up: a share in [0, 1], what is being waited for, and whether the controller is done."""

    progress: float
    waiting_for: str
    is_loaded: bool = False


async def wait_until_ready(state_dir: Path, *, show: Callable[[Step], None]) -> tuple[Stack, ServingPlan]:
    """Returns when every model of the stack answers over HTTP; `show` is told of each step.

    Raises:
        HeadwayError: the fault that the controller reports, e.g. a checkpoint that does not load.
        UnavailableError: everything is loaded but the gateway does not answer.
    """
    gateway_deadline_s: float | None = None
    while True:
        stack = read_stack(state_dir)
        step = await _look(state_dir, stack)
        show(step)
        if stack is not None and step.is_loaded:
            if await asyncio.to_thread(_answers, stack.http_url):
                return stack, await _plan(state_dir)
            gateway_deadline_s = gateway_deadline_s or time.monotonic() + _GATEWAY_TIMEOUT_S
            if time.monotonic() > gateway_deadline_s:
                raise UnavailableError(
                    f"Everything is loaded, but {stack.http_url}/ready does not answer.",
                    hint=f"See {state_dir}/logs/gateway.log.",
                )
        await asyncio.sleep(_POLL_EVERY_S)


async def _look(state_dir: Path, stack: Stack | None) -> Step:
    if stack is None:
        return Step(0.0, "Redis")
    if not stack.controller_endpoint:
        return Step(0.05, "the controller")
    try:
        async with calling_controller(state_dir) as controller:
            status = await controller.GetStatus(controller_pb2.GetStatusRequest(), timeout=_CALL_TIMEOUT_S)
    except (UnavailableError, DeadlineExceededError):
        return Step(0.05, "the controller")
    if status.HasField("fault"):
        raise error_from_pb(status.fault)
    if not status.ready:
        return Step(min(0.05 + 0.9 * status.progress, 0.95), status.waiting_for)
    return Step(0.97, "the gateway", is_loaded=True)


def _answers(http_url: str) -> bool:
    connection = HTTPConnection(urlsplit(http_url).netloc, timeout=_CALL_TIMEOUT_S)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


async def _plan(state_dir: Path) -> ServingPlan:
    async with calling_controller(state_dir) as controller:
        response = await controller.GetPlan(controller_pb2.GetPlanRequest(), timeout=_CALL_TIMEOUT_S)
    return from_pb(response.plan, ServingPlan)
