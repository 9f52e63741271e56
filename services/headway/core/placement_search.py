"""Searches over placements as documents: what is asked, and what they can go on from."""

from dataclasses import dataclass, field

from headway.core.frontier import Question
from headway.core.placement import Placement
from headway.core.placement_problem import PlacementProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSearch:
    """A search for the best placement.

    Attributes:
        files: content of the traces that the problem's workload names, in base64.
        processes: that search at once; None for one, or for as many as a Ray cluster has cores.
        ray: address of a Ray cluster, which the planner sets; empty for none.
    """

    problem: PlacementProblem
    files: dict[str, str] = field(default_factory=dict)
    processes: int | None = None
    ray: str = ""

    @property
    def title(self) -> str:
        return _devices(self.problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierSearch:
    """A search for a frontier.

    Attributes:
        files: see `PlacementSearch`.
        target: attainment that is asked for.
    """

    problem: PlacementProblem
    files: dict[str, str] = field(default_factory=dict)
    question: Question
    target: float

    @property
    def title(self) -> str:
        return f"{self.question} for {self.target:.4g} of requests; {_devices(self.problem)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BestPlacement:
    """The best placement so far, and its attainment on the requests that are searched."""

    placement: Placement
    attainment: float

    def __str__(self) -> str:
        return f"{self.attainment:.2%} with {self.placement.shapes}"


def _devices(problem: PlacementProblem) -> str:
    devices = " and ".join(f"{each.num_devices} x {each.device}" for each in problem.clusters)
    return f"{len(problem.models)} models on {devices}, {problem.workload.spec}"
