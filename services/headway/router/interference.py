"""Predicts what a newcomer does to the requests that a group has admitted, for models that generate. Pure.

Prompts are computed first come, first served (by rank where requests have one), in chunks that several may share; a
chunk is a step, in which running sequences decode. So a newcomer may delay the first token of those that wait, it
lengthens every step by its own decode, and some of them by its prompt.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from headway.core.line import Rank
from headway.router.candidate_group import CandidateGroup
from headway.router.request import RoutingRequest


@dataclass(slots=True, kw_only=True, eq=False)
class Commitment:
    """The objectives of an admitted request, and what has been used up of them.

    Attributes:
        num_prefill_tokens: of its prompt, that the group has to compute.
        rank: its place in line; empty where nobody overtakes anybody.
        first_token_by_s: by the router's clock, when the group must have its first token; infinite for no objective.
        decode_budget_s: for all of its output but the first token; infinite for no objective.
        num_gaps: between the tokens of an output of the usual length.
        step_s: the longest step of decodes that was predicted since it was admitted.
        borne_s: seconds of prompts that are computed between its tokens.
        has_begun: whether its first token is known to have come.
    """

    num_prefill_tokens: int
    rank: Rank = ()
    first_token_by_s: float = math.inf
    decode_budget_s: float = math.inf
    num_gaps: float = 0.0
    step_s: float = 0.0
    borne_s: float = 0.0
    has_begun: bool = False

    def bear(self, *, step_s: float, prefill_s: float) -> None:
        """A newcomer was admitted beside it."""
        self.step_s = max(self.step_s, step_s)
        self.borne_s += prefill_s

    def is_late(self, *, step_s: float = 0.0, prefill_s: float = 0.0) -> bool:
        """Whether its output takes too long, with a newcomer that brings so much."""
        return max(self.step_s, step_s) * self.num_gaps + (self.borne_s + prefill_s) > self.decode_budget_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillLine:
    """Prompt tokens that a group has yet to compute, and how fast.

    Attributes:
        num_tokens: in all; the newest leases have them.
        chunk_tokens: of a step at most.
        begin_s: by the router's clock, when the first of them is begun.
        per_token_s: with the steps that they take.
    """

    num_tokens: int
    chunk_tokens: int
    begin_s: float
    per_token_s: float

    def end_s(self, *, num_ahead: int, num_tokens: int) -> float:
        """Returns when a prompt whose last token is number `num_ahead` in line has its first output token, with
        `num_tokens` in line in all: its last chunk may be filled up with others' tokens.
        """
        return self.begin_s + self.per_token_s * min(num_ahead + self.chunk_tokens - 1, num_tokens)


def commit(
    request: RoutingRequest, candidate: CandidateGroup, *, rank: Rank, arrived_s: float, now_s: float
) -> Commitment:
    """Returns what the group would owe the request, for a model that generates and whose steps are known."""
    slo, gaps, budget_s = request.slo, candidate.num_gaps(request), math.inf
    if gaps > 0 and candidate.decode_at is None:
        if slo.tpot_s is not None:
            budget_s = slo.tpot_s * gaps
        if slo.e2e_s is not None:
            budget_s = min(budget_s, slo.e2e_s - (now_s - arrived_s) - candidate.ttft_s(request))
    return Commitment(
        num_prefill_tokens=candidate.num_uncached_tokens(request) * request.num_sequences,
        rank=rank,
        first_token_by_s=arrived_s + (slo.wait_s - candidate.overhead_s),
        decode_budget_s=budget_s,
        num_gaps=gaps,
        step_s=candidate.sustained_tpot_s(request),
        borne_s=candidate.num_overtaken_tokens * candidate.pending_token_s(),
    )


def is_harmful(
    newcomer: Commitment,
    admitted: list[Commitment],
    *,
    request: RoutingRequest,
    candidate: CandidateGroup,
    now_s: float,
) -> bool:
    """Whether one of those that the group has admitted, the newest first, would be late for a newcomer."""
    if delays_output(admitted, step_s=newcomer.step_s, prefill_s=candidate.compute_s(request)):
        return True
    line = PrefillLine(
        num_tokens=candidate.num_pending_tokens,
        chunk_tokens=candidate.chunk_tokens(),
        begin_s=now_s + candidate.step_s() / 2,
        per_token_s=candidate.pending_token_s(),
    )
    return delays_first_token(newcomer, waiting_of(admitted, num_tokens=line.num_tokens), line=line)


def waiting_of(newest_first: Iterable[Commitment], *, num_tokens: int) -> list[Commitment]:
    """Returns the requests whose prompts are not computed yet while `num_tokens` wait, the first in line first."""
    found: list[Commitment] = []
    num_behind = 0
    for commitment in newest_first:
        if num_behind >= num_tokens:
            break
        found.append(commitment)
        num_behind += commitment.num_prefill_tokens
    found.reverse()
    found.sort(key=lambda commitment: commitment.rank)
    return found


def num_overtaken_tokens(rank: Rank, admitted: Iterable[Commitment], *, num_tokens: int) -> int:
    """Returns how many of the waiting tokens are computed after a newcomer's."""
    waiting = waiting_of(admitted, num_tokens=num_tokens) if rank else []
    place = bisect_right(waiting, rank, key=lambda commitment: commitment.rank)
    return min(num_tokens, sum([commitment.num_prefill_tokens for commitment in waiting[place:]]))


def delays_first_token(newcomer: Commitment, waiting: list[Commitment], *, line: PrefillLine) -> bool:
    """Whether somebody who waits in line would have the first token too late for a newcomer."""
    num_ahead = line.num_tokens - sum([commitment.num_prefill_tokens for commitment in waiting])
    num_new = newcomer.num_prefill_tokens
    for commitment in waiting:
        num_ahead += commitment.num_prefill_tokens
        if commitment.first_token_by_s == math.inf:
            continue
        without_s = line.end_s(num_ahead=num_ahead, num_tokens=line.num_tokens)
        is_overtaken = newcomer.rank < commitment.rank
        with_s = line.end_s(num_ahead=num_ahead + is_overtaken * num_new, num_tokens=line.num_tokens + num_new)
        if without_s <= commitment.first_token_by_s < with_s:
            return True
    return False


def delays_output(running: Iterable[Commitment], *, step_s: float, prefill_s: float) -> bool:
    """Whether somebody's output would take too long beside a newcomer, with which steps of decodes take `step_s`, and
    whose prompt takes `prefill_s`."""
    return any(
        not commitment.is_late() and commitment.is_late(step_s=step_s, prefill_s=prefill_s)
        for commitment in running
        if commitment.decode_budget_s < math.inf
    )
