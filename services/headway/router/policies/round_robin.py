"""To each group in turn."""

from headway.router.candidate_group import CandidateGroup
from headway.router.request import RoutingRequest


class RoundRobin:
    """The number of the decision that chose the group last."""

    def score(self, request: RoutingRequest, candidate: CandidateGroup) -> float:  # noqa: ARG002 - the policies' interface
        return candidate.last_chosen
