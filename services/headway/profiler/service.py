"""Profiles the steps of a worker: measures what is not known yet, fits, and stores."""

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass

from headway.core.cluster import Hardware
from headway.core.errors import FailedPreconditionError, NotFoundError, UnavailableError
from headway.core.latency import LatencyModel
from headway.core.model import ModelSpec
from headway.core.profile import Profile, StepMeasurement, profile_id
from headway.observe.metrics import PROFILE_STEPS
from headway.profiler.fit import fit_latency
from headway.profiler.grid import Grid, Point, choose_grid
from headway.profiler.machines import Machines
from headway.profiler.measure import Bench, measure_point
from headway.profiler.neighbours import AccompaniedBench, dial_neighbours
from headway.profiler.worker import dial_worker
from headway.rpc.peers import Peers
from headway.store.documents import Documents

log = logging.getLogger(__name__)

_PATIENCE_S = 600.0
_MAX_ROUNDS = 3
_GOOD_ERROR = 0.2

_Measured = dict[Point, StepMeasurement]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilingProgress:
    """Points measured, of how many. The last one has the profile; `reused` if it came from the store."""

    num_done: int
    num_total: int
    profile: Profile | None = None
    reused: bool = False


class ProfilerService:
    """Measures one worker of a machine at a time.

    Measurements of a profile that was interrupted are kept in memory, and the next attempt goes on from there.
    """

    def __init__(
        self, peers: Peers, profiles: Documents[Profile], *, machines: Machines, patience_s: float = _PATIENCE_S
    ) -> None:
        self._peers = peers
        self._profiles = profiles
        self._patience_s = patience_s
        self._machines = machines
        self._partial: dict[str, _Measured] = {}

    async def profile(
        self, spec: ModelSpec, *, worker_id: str, force: bool, model: str = "", beside_others: bool = False
    ) -> AsyncGenerator[ProfilingProgress, None]:
        """Profiles a worker's model; yields after every point, and at last the profile.

        Args:
            spec: spec of the model that the worker has loaded.
            model: which of the worker's models it is; '' for its only one.
            force: measure anew even though a profile is stored.
            beside_others: the other workers of its machine compute as well meanwhile, where they have no requests.

        Raises:
            NotFoundError: there is no such worker.
            FailedPreconditionError: it has no model loaded, or was given another one in between.
            UnavailableError: it was lost, or is never idle, or Redis is away.
        """
        async with (
            dial_worker(self._peers, worker_id, model=model) as worker,
            self._machines.lock(worker.machine),
            AsyncExitStack() as stack,
        ):
            loaded = await worker.describe()
            name = profile_id(spec, loaded.hardware, loaded.parallel, backend=loaded.backend)
            stored = None if force else await self._profiles.get(name)
            if stored is not None:
                num_points = len(stored.measurements)
                yield ProfilingProgress(num_done=num_points, num_total=num_points, profile=stored, reused=True)
                return
            if force:
                self._partial.pop(name, None)
            grid = choose_grid(await worker.limits())
            measured = self._partial.setdefault(name, {})
            bench: Bench = worker
            if beside_others:
                neighbours = await stack.enter_async_context(dial_neighbours(self._peers, worker_id))
                bench = AccompaniedBench(worker, neighbours)
            async for num_done, num_total in self._measure(bench, grid, measured, worker_id=worker_id):
                yield ProfilingProgress(num_done=num_done, num_total=num_total)
            if await worker.describe() != loaded:
                del self._partial[name]
                raise FailedPreconditionError(
                    f"Worker {worker_id} was given another model while it was measured.", hint="Profile it again."
                )
            profile = _build_profile(name, spec, loaded.hardware, grid, measured)
            await self._profiles.put(profile, name)
            del self._partial[name]
            log.info(
                "profiled %s on %s to within %.0f %%", loaded.model, worker_id, 100 * profile.latency.relative_error
            )
            yield ProfilingProgress(num_done=num_done, num_total=num_total, profile=profile)

    async def get(self, name: str) -> Profile:
        """The profile of that id; NotFoundError where there is none."""
        profile = await self._profiles.get(name)
        if profile is None:
            raise NotFoundError(
                f"There is no profile '{name}'.", hint="ListProfiles names those that are stored.", field="profile_id"
            )
        return profile

    async def list(self) -> list[Profile]:
        """All stored profiles, the newest first."""
        return sorted(await self._profiles.all(), key=lambda profile: -profile.created_at_s)

    async def _measure(
        self, bench: Bench, grid: Grid, measured: _Measured, *, worker_id: str
    ) -> AsyncGenerator[tuple[int, int], None]:
        """Fills `measured` with the grid's points; yields how many are done, of how many, after each.

        Where the fit is poor something else kept the machine busy. That only ever makes steps slower, so all points
        are measured again and each keeps its quickest time.
        """
        num_points = len(grid.points)
        for num_rounds in range(1, _MAX_ROUNDS + 1):
            for number, point in enumerate(grid.points, start=(num_rounds - 1) * num_points + 1):
                known = measured.get(point)
                if known is None or num_rounds > 1:
                    again = await self._measure_point(bench, point, worker_id, number - 1, num_rounds * num_points)
                    measured[point] = min(known or again, again, key=lambda measurement: measurement.step_s)
                yield number, num_rounds * num_points
            if _fit(grid, measured).relative_error <= _GOOD_ERROR:
                return

    async def _measure_point(
        self, bench: Bench, point: Point, worker_id: str, num_done: int, num_total: int
    ) -> StepMeasurement:
        try:
            step_s = await measure_point(bench, point, patience_s=self._patience_s)
        except UnavailableError as error:
            raise UnavailableError(
                f"Profiling {worker_id} stopped after {num_done} of {num_total} points: {error.message}",
                hint="Profile it again when it is back; it goes on from there.",
            ) from error
        PROFILE_STEPS.labels(worker_id).inc()
        return StepMeasurement(
            prefill_tokens=point.prefill_tokens,
            num_decodes=point.num_decodes,
            context_tokens=point.context_tokens,
            step_s=step_s,
        )


def _build_profile(name: str, spec: ModelSpec, hardware: Hardware, grid: Grid, measured: _Measured) -> Profile:
    return Profile(
        profile_id=name,
        architecture=spec.architecture,
        model_hash=spec.content_hash,
        hardware=hardware,
        measurements=tuple(measured[point] for point in grid.points),
        latency=_fit(grid, measured),
        created_at_s=time.time(),
    )


def _fit(grid: Grid, measured: _Measured) -> LatencyModel:
    return fit_latency(
        [measured[point] for point in grid.fitted], held_out=[measured[point] for point in grid.held_out]
    )
