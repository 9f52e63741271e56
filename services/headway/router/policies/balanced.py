"""The policy that weighs load and prefix affinity together."""

from headway.router.candidate_group import CandidateGroup
from headway.router.policies.least_load import LeastLoad
from headway.router.policies.prefix_affinity import PrefixAffinity
from headway.router.request import RoutingRequest


class Balanced:
    """Scores the predicted time of the whole request. Load and affinity are both in seconds, so there are no weights to
    tune.
    """

    def __init__(self) -> None:
        self._parts = (LeastLoad(), PrefixAffinity())

    def score(self, request: RoutingRequest, candidate: CandidateGroup) -> float:
        return sum(part.score(request, candidate) for part in self._parts)
