"""Waiting until an applied placement is live. The controller makes it so, whether anybody waits or not."""

import asyncio
from pathlib import Path

from rich.console import Console

from headway.cli.calls import calling_controller
from headway.client.status import ControllerStatus
from headway.core.errors import DeadlineExceededError, FailedPreconditionError, InternalError, UnavailableError
from headway.core.plan.serving import ServingPlan
from headway.rpc.convert import from_pb
from headway.v1 import controller_pb2

_POLL_EVERY_S = 0.3
_TIMEOUT_S = 5.0


async def await_applied(placement_id: str, state_dir: Path | None, *, console: Console) -> None:
    """Returns when everything of the placement is loaded and all else is gone.

    Raises:
        FailedPreconditionError: another plan was applied meanwhile.
        InternalError: something cannot be loaded.
    """
    told = ""
    with console.status("applying") as shown:
        while step := await _step(placement_id, state_dir):
            shown.update(step)
            if step != told and not console.is_terminal:
                console.print(step, highlight=False, soft_wrap=True)
            told = step
            await asyncio.sleep(_POLL_EVERY_S)


async def _step(placement_id: str, state_dir: Path | None) -> str:
    """Says what is still waited for; '' once the placement is live."""
    try:
        plan, status = await _look(state_dir)
    except (UnavailableError, DeadlineExceededError):
        return "waiting for the controller"
    if plan.placement_id != placement_id:
        raise FailedPreconditionError(
            f"Another plan, {plan.plan_id}, was applied meanwhile.", hint="`headway plan show` shows it."
        )
    if status.fault is not None:
        raise InternalError(status.fault.message, hint=status.fault.hint)
    if not status.ready:
        return f"waiting for {status.waiting_for or 'the workers'}"
    leaving = [
        f"{model} to leave {worker.worker_id}"
        for worker in status.workers
        for model in worker.models
        if plan.assignment(worker.worker_id, model) is None
    ]
    return f"waiting for {', '.join(leaving)}" if leaving else ""


async def _look(state_dir: Path | None) -> tuple[ServingPlan, ControllerStatus]:
    async with calling_controller(state_dir) as stub:
        plan = await stub.GetPlan(controller_pb2.GetPlanRequest(), timeout=_TIMEOUT_S)
        status = await stub.GetStatus(controller_pb2.GetStatusRequest(), timeout=_TIMEOUT_S)
    return from_pb(plan.plan, ServingPlan), from_pb(status, ControllerStatus)
