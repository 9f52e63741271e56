"""Load and prefix affinity together."""

from headway.router.candidate_group import CandidateGroup
from headway.router.policies.least_load import LeastLoad
from headway.router.policies.prefix_affinity import PrefixAffinity
from headway.router.request import RoutingRequest


class Balanced:
    """Both in seconds, so their sum is the predicted time of the whole request: no weights to tune."""

    def __init__(self) -> None:
        self._parts = (LeastLoad(), PrefixAffinity())

    def score(self, request: RoutingRequest, candidate: CandidateGroup) -> float:
        return sum(part.score(request, candidate) for part in self._parts)
