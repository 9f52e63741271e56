"""The summary of an imported profile, for lists."""

from dataclasses import dataclass

from headway.core.catalogue.figure import Provenance
from headway.core.slice_profile import SliceProfile
from headway.core.stage_profile import StageProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSummary:
    """The summary of a `StageProfile` or a `SliceProfile`.

    Attributes:
        kind: 'stages' or 'slices'.
        num_points: the number of timings that it holds.
        relative_error: the error of the fit where there is one, else what the source states; 0 where it states none.
    """

    profile_id: str
    kind: str
    model: str
    hardware: str
    pp: int
    op: int
    num_points: int
    relative_error: float
    provenance: Provenance
    source: str
    created_at_s: float


def summary_of(profile: StageProfile | SliceProfile) -> ProfileSummary:
    if isinstance(profile, StageProfile):
        kind, num_points, error = "stages", profile.pp * len(profile.batches), profile.relative_error
    else:
        kind, num_points = "slices", len(profile.table)
        error = profile.forward.relative_error if profile.forward else 0.0
    return ProfileSummary(
        profile_id=profile.profile_id,
        kind=kind,
        model=profile.model,
        hardware=profile.hardware,
        pp=profile.pp,
        op=profile.op,
        num_points=num_points,
        relative_error=error,
        provenance=profile.provenance,
        source=profile.source,
        created_at_s=profile.created_at_s,
    )
