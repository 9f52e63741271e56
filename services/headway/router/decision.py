"""Chooses a candidate for a request, and says why."""

from collections.abc import Sequence

from headway.core.units import format_duration
from headway.router.candidate_group import CandidateGroup
from headway.router.policies.policy import Policy
from headway.router.request import RoutingRequest


def choose(request: RoutingRequest, candidates: Sequence[CandidateGroup], *, policy: Policy) -> CandidateGroup:
    """The one that the request prefers, or that with the lowest score.

    Of equal ones it is the one chosen longest ago; of a model that answers in one pass, the first in the plan, which
    leaves the others to bursts of those that they are shared with.
    """
    if len(candidates) == 1:
        return candidates[0]
    for candidate in candidates:
        if candidate.worker_id == request.preferred_worker_id:
            return candidate
    return min(candidates, key=lambda candidate: (policy.score(request, candidate), _turn(candidate)))


def _turn(candidate: CandidateGroup) -> int:
    return candidate.last_chosen if candidate.job is None else 0


def explain(request: RoutingRequest, candidate: CandidateGroup, *, num_candidates: int) -> str:
    """The choice in words."""
    rivals = f"best of {num_candidates}" if num_candidates > 1 else "the only one"
    if candidate.job is not None:
        return f"{candidate.group_id} is {rivals}: answered in {format_duration(candidate.ttft_s(request))}"
    times = (
        f"{format_duration(candidate.wait_s(request))} wait, {format_duration(candidate.prefill_s(request))} prefill"
        if candidate.is_predictable
        else "no latency model"
    )
    fetched = decoded = ""
    if candidate.source is not None:
        fetched = (
            f", {candidate.num_fetched_tokens} more fetched from {candidate.source.worker_id} in "
            f"{format_duration(candidate.fetch_s)}, computed in {format_duration(candidate.saved_s(request))}"
        )
    if candidate.decode_at is not None:
        decoded = f"; goes on at {candidate.decode_at.group_id} with {candidate.decode_at.num_sequences} sequences"
    return (
        f"{candidate.group_id} is {rivals}: {candidate.num_sequences} sequences there, "
        f"{candidate.num_cached_tokens} of {request.num_prompt_tokens} prompt tokens cached{fetched}, "
        f"{times}{decoded}"
    )
