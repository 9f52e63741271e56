"""To the group that is least busy."""

from headway.router.candidate import Candidate
from headway.router.request import RoutingRequest


class LeastLoad:
    """Seconds that others cost the request: the wait for their work, and decoding beside them."""

    def score(self, request: RoutingRequest, candidate: Candidate) -> float:
        return candidate.wait_s(request) + candidate.decode_s(request)
