"""A way to place models that was weighed."""

from dataclasses import dataclass

from headway.core.placement import Placement
from headway.core.placement_plan import Predictions


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePlacement:
    """Attributes:
    placement: None where it is another one in every window of time.
    remarks: what else there is to say of it, in sentences.
    """

    name: str
    placement: Placement | None
    predictions: Predictions
    remarks: tuple[str, ...] = ()
