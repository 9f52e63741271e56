"""Planning again from the traffic that was recorded."""

from dataclasses import dataclass
from enum import StrEnum

from headway.core.placement_problem import ProblemModel
from headway.core.plan.serving import ModelDeployment
from headway.core.stage_profile import StageProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanningPolicy:
    """The policy of re-planning.

    Attributes:
        every_s: seconds between two searches, in a loop.
        window_s: the seconds of traffic before now that are planned for.
        min_gain: attainment that a new placement must gain to be applied, a share of all requests.
        time_limit_s: the longest search; after it the best placement so far counts.
        slo_scale: objective of a model that has none, over its latency alone.
        profiles: the profiles of every model.
        deployments: how to serve each of them.
    """

    every_s: float
    window_s: float
    min_gain: float
    time_limit_s: float
    slo_scale: float
    models: tuple[ProblemModel, ...]
    profiles: tuple[StageProfile, ...]
    deployments: tuple[ModelDeployment, ...]


class ReplanningVerdict(StrEnum):
    """The verdict of a re-planning decision."""

    APPLIED = "applied"
    PROPOSED = "proposed"
    """It would have been applied, and was only tried."""
    KEPT = "kept"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanningDecision:
    """One decision of re-planning.

    Attributes:
        reason: why, in a sentence.
        num_requests: the number of requests in the window.
        attainment_before, attainment_after: predicted for requests like those, of the placement in use and of the one
            that was found; None where it is unknown.
        placement_id: the id of the placement that was found; empty for none.
    """

    decided_at_s: float
    verdict: ReplanningVerdict
    reason: str
    num_requests: int = 0
    attainment_before: float | None = None
    attainment_after: float | None = None
    placement_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanningStatus:
    """Attributes:
    replacement: what the re-planning loop follows; None where nobody asked for it.
    decisions: the newest first.
    next_at_s: of the next search, since 1970; 0 where there is none.
    """

    replacement: ReplanningPolicy | None = None
    decisions: tuple[ReplanningDecision, ...] = ()
    next_at_s: float = 0.0
