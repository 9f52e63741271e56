"""The policy that chooses the group that holds most of the prompt."""

from headway.router.candidate_group import CandidateGroup
from headway.router.request import RoutingRequest


class PrefixAffinity:
    """Seconds to prefill what the group has not cached. Blind to load, so it is for use in `Balanced`."""

    def score(self, request: RoutingRequest, candidate: CandidateGroup) -> float:
        return candidate.prefill_s(request)
