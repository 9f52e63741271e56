"""The protocol of a routing policy."""

from typing import Protocol

from headway.router.candidate_group import CandidateGroup
from headway.router.request import RoutingRequest


class Policy(Protocol):
    """Scores candidates, each on its own; the lowest score wins, ties go to whoever was chosen longest ago."""

    def score(self, request: RoutingRequest, candidate: CandidateGroup) -> float:
        """Returns how bad a choice the candidate is, in seconds where the policy is about time; the lowest wins."""
        ...
