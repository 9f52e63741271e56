"""The policy that chooses each group in turn."""

from headway.router.candidate_group import CandidateGroup
from headway.router.request import RoutingRequest


class RoundRobin:
    """Scores a group by the number of the decision that chose it last."""

    def score(self, request: RoutingRequest, candidate: CandidateGroup) -> float:  # noqa: ARG002 - the policies' interface
        return candidate.last_chosen
