"""The policy that chooses the least busy group."""

from headway.router.candidate_group import CandidateGroup
from headway.router.request import RoutingRequest


class LeastLoad:
    """Seconds that others cost the request: the wait for their work, and decoding beside them."""

    def score(self, request: RoutingRequest, candidate: CandidateGroup) -> float:
        return candidate.wait_s(request) + candidate.decode_s(request)
