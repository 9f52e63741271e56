"""Chooses prefill and decode groups: where a prompt is computed, and where its sequences go on."""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.plan.serving import Role
from headway.router.candidate_group import CandidateGroup
from headway.router.policies.policy import Policy
from headway.router.request import RoutingRequest


def by_role(
    request: RoutingRequest, candidates: Sequence[CandidateGroup], *, policy: Policy
) -> Sequence[CandidateGroup]:
    """Returns the candidates that may take the request: for a model with prefill groups these, each with the decode
    group where the sequences go on.

    While no prefill group is up the others compute prompts too; while no decode group is, sequences stay. So does what
    has been moved already.
    """
    if any(candidate.worker_id == request.preferred_worker_id for candidate in candidates):
        return candidates
    prefill = [candidate for candidate in candidates if candidate.role is Role.PREFILL]
    decode = [candidate for candidate in candidates if candidate.role is Role.DECODE]
    if not prefill:
        return candidates
    if not decode or request.stays or request.max_output_tokens <= 1:
        return prefill
    target = _decoder(request, decode, policy=policy)
    return [replace(candidate, decode_at=target, mean_output_tokens=1.0) for candidate in prefill]


def _decoder(request: RoutingRequest, candidates: Sequence[CandidateGroup], *, policy: Policy) -> CandidateGroup:
    """Chooses a decode group by the policy among those with memory for the whole prompt; among all if none has it."""
    ready = [replace(candidate, num_cached_tokens=max(0, request.num_prompt_tokens - 1)) for candidate in candidates]
    roomy = [
        candidate for candidate in ready if candidate.num_free_tokens > request.num_prompt_tokens and candidate.has_room
    ]
    return min(roomy or ready, key=lambda candidate: (policy.score(request, candidate), candidate.last_chosen))
