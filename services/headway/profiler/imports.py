"""Profiles that others made: taken in from files, kept beside the measured ones, and given out again."""

import asyncio
import json
import time
from collections.abc import Sequence

from headway.core.catalogue import Catalogue
from headway.core.errors import InvalidArgumentError, NotFoundError
from headway.core.profile_summary import ProfileSummary, summary_of
from headway.core.slice_profile import SliceProfile
from headway.core.stage_profile import StageProfile
from headway.profiler.formats import alpaserve, terapipe
from headway.profiler.formats.read import read_profiles
from headway.store.documents import Documents
from headway.store.redis import Database
from headway.store.schema import IMPORTED, SLICE_PROFILE, STAGE_PROFILE


class ImportedProfiles:
    """The store of imported profiles. Every method raises UnavailableError while the store is away.

    Summaries have keys of their own: a table of slices may have ten thousands of rows.
    """

    def __init__(self, database: Database, *, catalogue: Catalogue) -> None:
        self._stages = Documents(database, STAGE_PROFILE, StageProfile)
        self._slices = Documents(database, SLICE_PROFILE, SliceProfile)
        self._summaries = Documents(database, IMPORTED, ProfileSummary)
        self._catalogue = catalogue

    async def take_in(self, content: bytes, *, hardware: str) -> list[ProfileSummary]:
        """Stores the profiles of a file, all or none of them unless the store goes away.

        Args:
            content: JSON in AlpaServe's or TeraPipe's form, plain or gzip.
            hardware: name of the device in the catalogue that the figures are of.

        Raises:
            NotFoundError: the catalogue has no such device.
            InvalidArgumentError: names the path of the field that is missing or cannot be.
        """
        self._catalogue.device(hardware)
        profiles = await asyncio.to_thread(read_profiles, content, hardware=hardware, created_at_s=time.time())
        summaries = [summary_of(profile) for profile in profiles]
        for profile, summary in zip(profiles, summaries, strict=True):
            if isinstance(profile, StageProfile):
                await self._stages.put(profile, profile.profile_id)
            else:
                await self._slices.put(profile, profile.profile_id)
            await self._summaries.put(summary, summary.profile_id)
        return summaries

    async def list(self) -> list[ProfileSummary]:
        """Summaries ordered by model, hardware and layout."""
        return sorted(
            await self._summaries.all(),
            key=lambda each: (each.kind, each.model, each.hardware, each.pp * each.op, each.pp),
        )

    async def get(self, profile_id: str) -> StageProfile | SliceProfile:
        """The profile of that id; NotFoundError where there is none."""
        profile = await self._stages.get(profile_id) or await self._slices.get(profile_id)
        if profile is None:
            raise NotFoundError(
                f"No imported profile is called '{profile_id}'.",
                hint="`headway profile list` shows their ids.",
                field="profile_id",
            )
        return profile

    async def give_out(self, profile_ids: Sequence[str]) -> bytes:
        """Writes profiles as a file that `take_in` takes; InvalidArgumentError where the ids are of several kinds, or
        none."""
        profiles = [await self.get(profile_id) for profile_id in profile_ids]
        stages = [profile for profile in profiles if isinstance(profile, StageProfile)]
        slices = [profile for profile in profiles if isinstance(profile, SliceProfile)]
        if bool(stages) == bool(slices):
            raise InvalidArgumentError(
                "A file holds profiles of stages or of slices.", hint="Export each kind alone.", field="profile_ids"
            )
        if len({profile.hardware for profile in profiles}) > 1:
            raise InvalidArgumentError(
                "A file holds profiles of one kind of hardware.", hint="Export each alone.", field="profile_ids"
            )
        return await asyncio.to_thread(_write, stages, slices)


def _write(stages: Sequence[StageProfile], slices: Sequence[SliceProfile]) -> bytes:
    document = alpaserve.write(stages) if stages else terapipe.write(slices)
    return json.dumps(document, indent=1).encode()
