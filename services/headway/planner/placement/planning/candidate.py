"""A candidate placement that was weighed against others."""

from dataclasses import dataclass

from headway.core.placement import Placement
from headway.core.plan.placement import Predictions


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePlacement:
    """A way to place models, with its predictions.

    Attributes:
        placement: None where it is another one in every window of time.
        remarks: further remarks on it, in sentences.
    """

    name: str
    placement: Placement | None
    predictions: Predictions
    remarks: tuple[str, ...] = ()
