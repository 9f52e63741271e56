"""The result of placing models: one document with the placement, its predictions and what they rest on."""

from dataclasses import dataclass

from headway.core.placement import Placement
from headway.core.placement_problem import PlacementProblem

PLACEMENT_PLAN_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedModel:
    """The prediction for one model's requests.

    Attributes:
        attainment: the share that met their objective; refused requests did not.
    """

    model: str
    num_requests: int
    attainment: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedAttainment:
    """The result of simulating all requests.

    Attributes:
        utilisation: the utilisation of each group, in [0, 1].
        mean_latency_s, p99_latency_s: latencies of the requests that were served; None where none was.
    """

    attainment: float
    models: tuple[PredictedModel, ...]
    utilisation: tuple[float, ...]
    mean_latency_s: float | None = None
    p99_latency_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """The predictions for one placement, on the requests it was searched on and on others; `held_out` is what to
    expect.
    """

    searched: PredictedAttainment
    held_out: PredictedAttainment


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementBucket:
    """Models that share groups with each other and with no others.

    Attributes:
        groups: numbers in the placement.
    """

    models: tuple[str, ...]
    groups: tuple[int, ...]
    num_devices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementAlternative:
    """Another way to place the models.

    Attributes:
        placement: None where it is another one in every window of time.
        why_not: in sentences.
    """

    name: str
    placement: Placement | None = None
    predictions: Predictions
    why_not: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPlan:
    """Attributes:
    findings: what cannot be had, in sentences, such as a model that fits nowhere.
    is_complete: whether the search came to its end; else it was ended, and this is the best until then.
    """

    version: int = PLACEMENT_PLAN_VERSION
    plan_id: str
    created_at_s: float
    problem: PlacementProblem
    placement: Placement
    buckets: tuple[PlacementBucket, ...]
    predictions: Predictions
    alternatives: tuple[PlacementAlternative, ...] = ()
    findings: tuple[str, ...] = ()
    search_s: float
    is_complete: bool = True
