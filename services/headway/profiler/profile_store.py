"""The store of model profiles, and the removal of any kind of profile."""

from collections.abc import Sequence

from headway.core.errors import NotFoundError
from headway.core.model_profile import ModelProfile, ModelProfileSummary, summary_of_model
from headway.core.profile import Profile
from headway.core.profile_summary import ProfileSummary
from headway.core.slice_profile import SliceProfile
from headway.core.stage_profile import StageProfile
from headway.profiler.jobs.bench_workers import BenchWorkers
from headway.profiler.jobs.store import JobStore
from headway.store.documents import Documents
from headway.store.hardware import HardwareTimings
from headway.store.redis import Database
from headway.store.schema import IMPORTED, PROFILE, SLICE_PROFILE, STAGE_PROFILE


class ProfileStore:
    """Lists, gives out and removes profiles. Every method raises UnavailableError while Redis is away."""

    def __init__(self, database: Database, bench_workers: BenchWorkers) -> None:
        self._store = JobStore(database)
        self._bench_workers = bench_workers
        self._hardware = HardwareTimings(database)
        self._steps = Documents(database, PROFILE, Profile)
        self._others = (
            Documents(database, STAGE_PROFILE, StageProfile),
            Documents(database, SLICE_PROFILE, SliceProfile),
            Documents(database, IMPORTED, ProfileSummary),
        )

    async def get(self, profile_id: str) -> ModelProfile:
        """The model profile of that id; NotFoundError where there is none."""
        profile = await self._store.profiles.get(profile_id)
        if profile is None:
            raise NotFoundError(
                f"No model profile is called '{profile_id}'.",
                hint="`headway profile list` shows their ids.",
                field="profile_id",
            )
        return profile

    async def list(self) -> list[ModelProfileSummary]:
        """Summaries of the model profiles, the newest first."""
        current = await self._current()
        profiles = sorted(await self._store.profiles.all(), key=lambda profile: -profile.created_at_s)
        return [
            summary_of_model(profile, is_stale=profile.hardware.content_hash not in current) for profile in profiles
        ]

    async def forget(self, profile_ids: Sequence[str]) -> int:
        """Removes profiles of whatever kind; measurements of operators stay. Returns how many there were.

        Raises:
            NotFoundError: one of the ids is unknown; those before it are gone.
        """
        for profile_id in profile_ids:
            found = [await self._steps.delete(profile_id), await self._store.profiles.delete(profile_id)]
            found += [await documents.delete(profile_id) for documents in self._others]
            found.append(await self._hardware.forget(profile_id))
            if not any(found):
                raise NotFoundError(
                    f"No profile is called '{profile_id}'.",
                    hint="`headway profile list` shows their ids.",
                    field="profile_ids",
                )
        return len(profile_ids)

    async def forget_stale(self) -> tuple[int, int]:
        """Removes what workers of other hardware or versions than now run have measured.

        Returns:
            How many profiles, and how many measurements of operators.
        """
        current = await self._current()
        models = [p for p in await self._store.profiles.all() if p.hardware.content_hash not in current]
        steps = [p for p in await self._steps.all() if p.hardware.content_hash not in current]
        measurements = [m for m in await self._store.measurements.all() if m.hardware.content_hash not in current]
        for model in models:
            await self._store.profiles.delete(model.profile_id)
        for step in steps:
            await self._steps.delete(step.profile_id)
        for measurement in measurements:
            await self._store.measurements.delete(measurement.measurement_id)
        return len(models) + len(steps), len(measurements)

    async def _current(self) -> set[str]:
        return {worker.hardware.content_hash for worker in await self._bench_workers.workers()}
