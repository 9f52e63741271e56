"""The planner's work: fetch the profiles that matter, then think."""

import asyncio
import time
import uuid
from collections.abc import Collection, Sequence
from itertools import product

from headway.core.catalogue import Catalogue
from headway.core.cluster import PlanWorker
from headway.core.errors import HeadwayError
from headway.core.mesh import ParallelConfig
from headway.core.plan import EngineLimits, ModelDeployment, ServingPlan, plan_id_at
from headway.core.profile import Profile, profile_id
from headway.observe.metrics import PLANS_MADE
from headway.planner.serving.choice import choose_plan, is_open
from headway.planner.serving.layouts import layouts_of
from headway.store.documents import Documents


class PlannerService:
    """Plans with the profiles in the store, and estimates from the catalogue; None for the built-in one.

    Every method raises UnavailableError while the store is away.
    """

    def __init__(self, profiles: Documents[Profile], *, catalogue: Catalogue | None = None) -> None:
        self._profiles = profiles
        self._catalogue = catalogue

    async def make(
        self,
        models: Sequence[ModelDeployment],
        workers: Sequence[PlanWorker],
        *,
        limits: EngineLimits,
        current: ServingPlan | None,
    ) -> ServingPlan:
        """A plan with an id of its own; see `serving.choice.choose_plan` for arguments and errors."""
        layouts = set(layouts_of(models, num_workers=len(workers))) if is_open(limits) else {limits.parallel}
        if current is not None:  # uneven stages are layouts of their own
            layouts |= {assignment.parallel for assignment in current.assignments}
        profiles = await self._find_profiles(models, workers, layouts)
        now_s = time.time()
        try:
            plan = await asyncio.to_thread(
                choose_plan,
                models,
                workers,
                limits=limits,
                profiles=profiles,
                plan_id=plan_id_at(now_s, nonce=uuid.uuid4().hex[:6]),
                created_at_s=now_s,
                current=current,
                catalogue=self._catalogue,
            )
        except HeadwayError as error:
            PLANS_MADE.labels(error.code).inc()
            raise
        PLANS_MADE.labels("ok").inc()
        return plan

    async def _find_profiles(
        self, models: Sequence[ModelDeployment], workers: Sequence[PlanWorker], layouts: Collection[ParallelConfig]
    ) -> dict[str, Profile]:
        hardware = {worker.hardware.content_hash: worker.hardware for worker in workers}.values()
        ids = {profile_id(*pair) for pair in product((model.spec for model in models), hardware, layouts)}
        found = [await self._profiles.get(profile) for profile in sorted(ids)]
        return {profile.profile_id: profile for profile in found if profile is not None}
