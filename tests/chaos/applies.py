"""Somebody who applies one plan after the other to a running stack, and writes down which were acknowledged."""

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from headway.cli.calls import calling_controller
from headway.core.errors import (
    DeadlineExceededError,
    HeadwayError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from headway.core.plan.serving import ServingPlan
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import controller_pb2, planner_pb2
from tests.chaos.history import Applied

_TIMEOUT_S = 30.0
PAUSE_S = 3.0


class Applies:
    """Each plan gives the first group one sequence more, or one less, than the one before: it is loaded anew.

    Attributes:
        done: in order.

    Args:
        pause_s: between two of them.
    """

    def __init__(self, state_dir: Path, *, pause_s: float = PAUSE_S) -> None:
        self.done: list[Applied] = []
        self._state_dir = state_dir
        self._pause_s = pause_s
        self._numbers = count()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def plan_ids(self) -> list[str]:
        """What the stack tells of its plans, the newest first."""
        return asyncio.run(self._plan_ids())

    async def apply(self) -> Applied:
        """One more.

        Raises:
            InvalidArgumentError: it is no plan.
            HeadwayError: it did not come to be asked for.
        """
        number = next(self._numbers)
        async with calling_controller(self._state_dir) as stub:
            response = await stub.GetPlan(controller_pb2.GetPlanRequest(), timeout=_TIMEOUT_S)
        plan = from_pb(response.plan, ServingPlan)
        first, *others = plan.assignments
        first = replace(first, max_num_seqs=first.max_num_seqs + (-1 if number % 2 else 1))
        plan = replace(plan, plan_id=f"applied-{number}", assignments=(first, *others))
        request = controller_pb2.ApplyPlanRequest(plan=to_pb(plan, planner_pb2.ServingPlan))
        try:
            async with calling_controller(self._state_dir) as stub:
                await stub.ApplyPlan(request, timeout=_TIMEOUT_S)
        except InvalidArgumentError:
            raise
        except HeadwayError:
            return Applied(plan_id=plan.plan_id, is_acknowledged=False)
        return Applied(plan_id=plan.plan_id, is_acknowledged=True)

    async def _plan_ids(self) -> list[str]:
        async with calling_controller(self._state_dir) as stub:
            response = await stub.GetPlan(controller_pb2.GetPlanRequest(), timeout=_TIMEOUT_S)
        return list(response.plan_ids)

    def _run(self) -> None:
        while not self._is_over.is_set():
            with suppress(UnavailableError, DeadlineExceededError, NotFoundError):  # no controller just now, or no plan
                self.done.append(asyncio.run(self.apply()))
            self._is_over.wait(self._pause_s)
