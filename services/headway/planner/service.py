"""The planner's service: fetches the profiles that matter, then plans."""

import asyncio
import time
import uuid
from collections.abc import Collection, Sequence
from itertools import product

from headway.core.catalogue import Catalogue, built_in_catalogue
from headway.core.cluster import Hardware, PlanWorker
from headway.core.errors import HeadwayError
from headway.core.hardware.profile import LinkProfile
from headway.core.parallel_config import ParallelConfig
from headway.core.plan.placement import PlacementPlan
from headway.core.plan.serving import EngineLimits, ModelDeployment, ServingPlan, plan_id_at
from headway.core.profile import Profile, profile_id
from headway.core.stage_profile import StageProfile
from headway.observe.metrics import PLANS_MADE
from headway.planner.serving.choice import choose_plan, is_open
from headway.planner.serving.layouts import layouts_of
from headway.planner.serving.placed import limits_on, make_placed_plan
from headway.store.documents import Documents


class PlannerService:
    """Plans with the profiles in the store, and with estimates from the catalogue; None is the built-in one.

    Every method raises UnavailableError while the store is away.
    """

    def __init__(
        self,
        profiles: Documents[Profile],
        *,
        stage_profiles: Documents[StageProfile],
        link_profiles: Documents[LinkProfile],
        catalogue: Catalogue | None = None,
    ) -> None:
        self._profiles = profiles
        self._stage_profiles = stage_profiles
        self._link_profiles = link_profiles
        self._catalogue = catalogue

    async def make(
        self,
        models: Sequence[ModelDeployment],
        workers: Sequence[PlanWorker],
        *,
        limits: EngineLimits,
        current: ServingPlan | None,
    ) -> ServingPlan:
        """Makes a plan with an id of its own; see `serving.choice.choose_plan` for arguments and errors."""
        layouts = set(layouts_of(models, num_workers=len(workers))) if is_open(limits) else {limits.parallel}
        layouts |= {model.parallel for model in models if model.parallel is not None}
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
                stage_profiles=await self._find_stage_profiles(models),
                plan_id=plan_id_at(now_s, nonce=uuid.uuid4().hex[:6]),
                created_at_s=now_s,
                current=current,
                link_profiles=await self._link_profiles.all(),
                catalogue=self._catalogue,
            )
        except HeadwayError as error:
            PLANS_MADE.labels(error.code).inc()
            raise
        PLANS_MADE.labels("ok").inc()
        return plan

    async def assign_workers(
        self,
        placement: PlacementPlan,
        models: Sequence[ModelDeployment],
        workers: Sequence[PlanWorker],
        *,
        limits: EngineLimits,
        current: ServingPlan | None,
    ) -> ServingPlan:
        """Makes the plan of a placement, with an id of its own; see `serving.placed.make_placed_plan` for arguments and
        errors."""
        layouts = {limits_on(group.shape, limits).parallel for group in placement.placement.groups}
        now_s = time.time()
        return await asyncio.to_thread(
            make_placed_plan,
            placement,
            models,
            workers,
            limits=limits,
            profiles=await self._find_profiles(models, workers, layouts),
            stage_profiles=await self._find_stage_profiles(models),
            plan_id=plan_id_at(now_s, nonce=uuid.uuid4().hex[:6]),
            created_at_s=now_s,
            current=current,
            link_profiles=await self._link_profiles.all(),
            catalogue=self._catalogue,
        )

    async def _find_profiles(
        self, models: Sequence[ModelDeployment], workers: Sequence[PlanWorker], layouts: Collection[ParallelConfig]
    ) -> dict[str, Profile]:
        hardware = {worker.hardware.content_hash: worker.hardware for worker in workers}.values()
        ids = {
            profile_id(model.spec, of_worker, layout, backend=model.backend)
            for model, of_worker, layout in product(models, hardware, layouts)
        }
        found = [await self._profiles.get(profile) for profile in sorted(ids)]
        known = {profile.profile_id: profile for profile in found if profile is not None}
        emulated = [each for each in hardware if each.is_emulated]
        measured = await self._profiles.all() if emulated else []
        return known | _as_emulated(measured, emulated, models, layouts, self._catalogue or built_in_catalogue())

    async def _find_stage_profiles(self, models: Sequence[ModelDeployment]) -> dict[str, StageProfile]:
        """Finds stage profiles of the models that are known by nothing else."""
        wanted = {model.profile for model in models if model.profile}
        found = await self._stage_profiles.all() if wanted else []
        return {profile.profile_id: profile for profile in found if profile.model in wanted}


def _as_emulated(
    measured: Sequence[Profile],
    emulated: Sequence[Hardware],
    models: Sequence[ModelDeployment],
    layouts: Collection[ParallelConfig],
    catalogue: Catalogue,
) -> dict[str, Profile]:
    """Profiles measured on real devices of the kinds that are emulated, by the ids of the emulated ones."""
    return {
        profile_id(model.spec, hardware, layout): profile
        for profile, hardware, model, layout in product(measured, emulated, models, layouts)
        if profile.profile_id == profile_id(model.spec, profile.hardware, layout)
        and catalogue.device_of(profile.hardware).name == hardware.name
    }
