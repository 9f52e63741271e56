"""Refuses at once what could only be late, or make others late."""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.errors import ResourceExhaustedError
from headway.core.units import format_duration
from headway.router.candidate_group import CandidateGroup
from headway.router.request import RoutingRequest

_MIN_RETRY_S = 1.0
_MAX_RETRY_S = 60.0


def admit(
    request: RoutingRequest, candidates: Sequence[CandidateGroup], *, waited_s: float
) -> Sequence[CandidateGroup]:
    """The candidates that can keep the request's SLO, and those of others, as far as it can be predicted; all of them
    where it has none. Where that is none, a group is tried that has nothing to do, was slow when it was last seen, and
    would keep it at its usual speed: nobody waits there, and its answer tells how fast the group is now.

    Args:
        waited_s: since the request arrived.

    Raises:
        ResourceExhaustedError: none can.
    """
    if not request.slo or request.resumed:
        return candidates
    admitted = [candidate for candidate in candidates if _keeps_slo(request, candidate, waited_s)]
    if not admitted:
        admitted = [each for each in candidates if _is_worth_a_try(request, each, waited_s)]
    if not admitted:
        raise _refusal(request, candidates, waited_s)
    return admitted


def _keeps_slo(request: RoutingRequest, candidate: CandidateGroup, waited_s: float) -> bool:
    if not candidate.is_predictable:
        return True
    if candidate.is_harmful:
        return False
    return request.slo.is_met(
        ttft_s=waited_s + _ttft_s(request, candidate),
        tpot_s=candidate.sustained_tpot_s(request) if request.max_output_tokens > 1 else None,
        e2e_s=waited_s + _e2e_s(request, candidate),
    )


def _is_worth_a_try(request: RoutingRequest, candidate: CandidateGroup, waited_s: float) -> bool:
    if candidate.usual is None:
        return False
    return _keeps_slo(request, replace(candidate, latency=candidate.usual, overhead_s=0.0), waited_s)


def _ttft_s(request: RoutingRequest, candidate: CandidateGroup) -> float:
    """Returns the time to the first token in seconds, as far as it is certain: what waits ahead of a request may yet be
    batched with it.
    """
    return candidate.ttft_s(request) if candidate.job is None else candidate.soonest_s


def _e2e_s(request: RoutingRequest, candidate: CandidateGroup) -> float:
    if candidate.job is not None:
        return candidate.soonest_s
    return candidate.ttft_s(request) + candidate.num_gaps(request) * candidate.sustained_tpot_s(request)


def _refusal(request: RoutingRequest, candidates: Sequence[CandidateGroup], waited_s: float) -> ResourceExhaustedError:
    slo = request.slo
    ttft_s = waited_s + min(_ttft_s(request, candidate) for candidate in candidates)
    if slo.ttft_s is not None and ttft_s > slo.ttft_s:
        return ResourceExhaustedError(
            f"The first token would take {format_duration(ttft_s)}, its objective is {format_duration(slo.ttft_s)}.",
            hint="Try again when fewer requests are ahead, shorten the prompt, or allow more time to the first token.",
            field="slo.ttft_s",
            retry_after_s=_clamp(ttft_s - slo.ttft_s),
        )
    e2e_s = waited_s + min(_e2e_s(request, candidate) for candidate in candidates)
    if slo.e2e_s is not None and e2e_s > slo.e2e_s:
        return ResourceExhaustedError(
            f"The answer would take {format_duration(e2e_s)}, its objective is {format_duration(slo.e2e_s)}.",
            hint="Try again when fewer requests are ahead, ask for less, or allow more time.",
            field="slo_ms",
            retry_after_s=_clamp(e2e_s - slo.e2e_s),
        )
    harmful = [candidate for candidate in candidates if candidate.is_harmful]
    if harmful:
        return ResourceExhaustedError(
            "Requests that were admitted before would miss their objectives for this one.",
            hint="Try again when fewer requests are ahead, or allow more time: then it lets them go first.",
            field="slo_ms",
            retry_after_s=_clamp(min(candidate.answer_s for candidate in harmful)),
        )
    least_busy = min(candidates, key=lambda candidate: candidate.sustained_tpot_s(request))
    return ResourceExhaustedError(
        f"A token would take {format_duration(least_busy.sustained_tpot_s(request))} beside the running requests"
        + (f", its objective is {format_duration(slo.tpot_s)}." if slo.tpot_s is not None else "."),
        hint="Try again when fewer requests are running, or allow more time per output token.",
        field="slo.tpot_s",
        retry_after_s=_clamp(least_busy.decode_s(request) / max(1, least_busy.num_sequences)),
    )


def _clamp(retry_after_s: float) -> float:
    return min(max(retry_after_s, _MIN_RETRY_S), _MAX_RETRY_S)
