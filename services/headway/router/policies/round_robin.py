"""To each group in turn."""

from headway.router.candidate import Candidate
from headway.router.request import RoutingRequest


class RoundRobin:
    """The number of the decision that chose the group last."""

    def score(self, request: RoutingRequest, candidate: Candidate) -> float:  # noqa: ARG002 - the policies' interface
        return candidate.last_chosen
