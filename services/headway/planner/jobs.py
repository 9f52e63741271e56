"""Runs searches for placements as jobs, each in a thread of its own, with progress, until it is done, stopped or out of
time."""

import asyncio
import threading
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from headway.core.catalogue import Catalogue, built_in_catalogue
from headway.core.cluster import Hardware
from headway.core.errors import InternalError
from headway.core.frontier import Frontier, Question
from headway.core.graph import Graph
from headway.core.hardware.profile import LinkProfile
from headway.core.placement_problem import PlacementProblem
from headway.core.plan.placement import PlacementAlternative, PlacementPlan, PlacementProgress
from headway.core.plan.serving import ModelDeployment, plan_id_at
from headway.core.stage_profile import StageProfile
from headway.planner.certify.placement import find_placement_violations
from headway.planner.executors import search_executor
from headway.planner.inter.estimate import estimate_stage_profiles
from headway.planner.placement.planning.frontier import find_frontier
from headway.planner.placement.planning.plan import Report, ShouldStop, make_placement_plan, try_instead
from headway.planner.serving.device_roofline import links_on
from headway.planner.serving.generating import estimate_generation
from headway.store.documents import Documents

R = TypeVar("R")


class PlacementJobs:
    """Runs one search at a time: each takes a processor for as long as it runs."""

    def __init__(self, link_profiles: Documents[LinkProfile], *, catalogue: Catalogue | None = None) -> None:
        self._link_profiles = link_profiles
        self._catalogue = catalogue or built_in_catalogue()
        self._searching = asyncio.Lock()

    async def estimate(
        self,
        graph: Graph,
        *,
        model: str,
        device: str,
        max_devices: int,
        dtype: str | None = None,
        is_live: bool = False,
    ) -> list[StageProfile]:
        """Estimates profiles of a captured model; see `estimate_stage_profiles`.

        Args:
            is_live: whether exchanges count as they were measured on such devices, where they were.

        Raises:
            UnavailableError: `is_live`, and the store is away.
        """
        measured = await self._link_profiles.all() if is_live else []
        return await asyncio.to_thread(
            estimate_stage_profiles,
            graph,
            model=model,
            device=device,
            catalogue=self._catalogue,
            max_devices=max_devices,
            dtype=dtype,
            links=links_on(device, measured, self._catalogue),
            created_at_s=time.time(),
        )

    async def estimate_generation(
        self, model: ModelDeployment, hardware: Hardware, *, max_devices: int
    ) -> list[StageProfile]:
        """Estimates profiles of a language model; see `serving.generating.estimate_generation`."""
        return await asyncio.to_thread(
            estimate_generation,
            model,
            hardware,
            catalogue=self._catalogue,
            max_devices=max_devices,
            created_at_s=time.time(),
        )

    async def plan(
        self,
        problem: PlacementProblem,
        files: Mapping[str, bytes],
        *,
        time_limit_s: float | None,
        stop: asyncio.Event,
        processes: int | None = None,
        ray: str = "",
    ) -> AsyncGenerator[PlacementProgress | PlacementPlan, None]:
        """Searches a placement; yields progress, and at last the plan, certified. Arguments and errors are those of
        `make_placement_plan`.

        Args:
            processes, ray: see `search_executor`.
        """
        now_s = time.time()

        def make(report: Report, should_stop: ShouldStop) -> PlacementPlan:
            with search_executor(processes, ray) as executor:
                plan = make_placement_plan(
                    problem,
                    files,
                    plan_id=plan_id_at(now_s, nonce=uuid.uuid4().hex[:6]),
                    created_at_s=now_s,
                    report=report,
                    should_stop=should_stop,
                    executor=executor,
                )
            if violations := find_placement_violations(plan):
                raise InternalError(f"The placement that was found is not valid: {violations[0]}")
            return plan

        async for told in self._run(make, time_limit_s=time_limit_s, stop=stop):
            yield told

    async def frontier(
        self,
        problem: PlacementProblem,
        files: Mapping[str, bytes],
        *,
        question: Question,
        target: float,
        time_limit_s: float | None,
        stop: asyncio.Event,
    ) -> AsyncGenerator[PlacementProgress | Frontier, None]:
        """Finds a frontier; yields progress, and at last the curve. Arguments and errors are those of
        `find_frontier`."""

        def find(report: Report, should_stop: ShouldStop) -> Frontier:
            return find_frontier(
                problem, files, question=question, target=target, report=report, should_stop=should_stop
            )

        async for told in self._run(find, time_limit_s=time_limit_s, stop=stop):
            yield told

    async def try_instead(self, plan: PlacementPlan, text: str, files: Mapping[str, bytes]) -> PlacementAlternative:
        """Simulates another placement on a plan's requests; see `planning.plan.try_instead`."""
        return await asyncio.to_thread(try_instead, plan, text, files)

    async def _run(
        self, work: Callable[[Report, ShouldStop], R], *, time_limit_s: float | None, stop: asyncio.Event
    ) -> AsyncGenerator[PlacementProgress | R, None]:
        """Runs work in a thread. Closing the generator stops it; so do `stop` and the time limit, which let it
        answer."""
        loop = asyncio.get_running_loop()
        told: asyncio.Queue[PlacementProgress | None] = asyncio.Queue()
        should_stop = threading.Event()

        def report(progress: PlacementProgress) -> None:
            loop.call_soon_threadsafe(told.put_nowait, progress)

        async with self._searching:
            stopping = asyncio.create_task(_pass_on(stop, should_stop, time_limit_s))
            working = asyncio.create_task(asyncio.to_thread(work, report, should_stop.is_set))
            working.add_done_callback(lambda _: told.put_nowait(None))
            try:
                while (progress := await told.get()) is not None:
                    yield progress
                yield working.result()
            finally:
                should_stop.set()
                stopping.cancel()
                await asyncio.wait([working])


async def _pass_on(stop: asyncio.Event, should_stop: threading.Event, time_limit_s: float | None) -> None:
    """Passes the wish to stop, or the end of the time limit, from the event loop to the thread."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), time_limit_s)
    should_stop.set()
