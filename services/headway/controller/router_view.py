"""What the router knows of the requests for each model."""

from collections.abc import Mapping
from dataclasses import dataclass

from headway.core.plan.serving import ServingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSample:
    """One model at one moment.

    Attributes:
        num_met, num_judged: requests with an SLO since counting began: those that met it, and all. Refused ones are
            among the latter.
        num_present: requests that run or wait now.
        num_arrived: requests since the router started.
    """

    num_met: int = 0
    num_judged: int = 0
    num_present: int = 0
    num_arrived: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterView:
    """What the router knows.

    Attributes:
        reporting: models and leaders of the groups that report to it.
        run_id: of its process.
    """

    models: Mapping[str, ModelSample]
    reporting: frozenset[tuple[str, str]]
    run_id: str = ""

    def has_all_of(self, plan: ServingPlan) -> bool:
        """Whether all of a plan's groups report: what some are asked for is not known otherwise."""
        return self.reporting >= {(each.model, each.worker_id) for each in plan.assignments}
