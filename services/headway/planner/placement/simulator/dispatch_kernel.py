"""A model that generates on several groups, compiled: the router's choice for each request, and the groups' engines.

It follows `router/candidate.py`, `admission.py` and the balanced policy for requests of one sequence whose prompts no
group has cached, with a worker's report at the end of each step. A group may be given any number of leases.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from headway.planner.placement.simulator.engine_kernel import begin_step, end_step, has_work, submit
from headway.planner.placement.simulator.engine_state import (
    BASE,
    BLOCK_SIZE,
    BLOCKS,
    CONTEXT,
    DECODE,
    NONE,
    PAIR,
    SEQS,
    TOKEN,
    TOKENS,
    Counts,
    Engines,
    Requests,
)
from headway.planner.placement.simulator.kernel import Floats, Ints

_SUBMIT_S = 0.02
_INITIAL_TOKENS = 128.0
_WEIGHT = 0.05
"""As `router/dispatcher.py` and `router/lengths.py` have them."""


class Router(NamedTuple):
    """What the router knows of the groups.

    Its own latency models, [num_groups, NUM_COEFFICIENTS]; of each group's latest report, [num_groups]: sequences that
    run or wait, their tokens that are to be computed, the context of those that run, and when it came; the leases that
    have not ended: the newest of a group and their number, and of each lease the one before and the one behind it,
    [num_requests].
    """

    latency: Floats
    sequences: Counts
    pending: Counts
    context: Counts
    reported_s: Floats
    newest: Counts
    num_leases: Counts
    before: Counts
    behind: Counts
    last_chosen: Counts


def make_router(latency: Floats, num_requests: int) -> Router:
    num_groups = len(latency)
    zeros = np.zeros(num_groups, np.int64)
    return Router(
        latency=latency,
        sequences=zeros,
        pending=zeros.copy(),
        context=zeros.copy(),
        reported_s=np.zeros(num_groups),
        newest=np.full(num_groups, NONE, np.int64),
        num_leases=zeros.copy(),
        before=np.full(num_requests, NONE, np.int64),
        behind=np.full(num_requests, NONE, np.int64),
        last_chosen=zeros.copy(),
    )


@njit(cache=True, nogil=True)
def serve_generated(
    engines: Engines,
    router: Router,
    requests: Requests,
    slo_s: Floats,
    ttft_slo_s: float,
    tpot_slo_s: float,
    longest: int,
    overhead_s: float,
    admission: bool,  # noqa: FBT001
    served_by: Ints,
) -> None:
    """Serve all requests; sets their `first_s` and `finish_s`, infinite where they are refused, and their groups.

    Args:
        slo_s: of the whole answers, [num_requests]. Infinite bounds are none.
        longest: prompt and output tokens together; the gateway refuses what has more.
        overhead_s: that the router adds to what it foretells of a first token and of a whole answer.
        served_by: filled; -1 where a request was refused.
    """
    mean_tokens = _INITIAL_TOKENS
    for i in range(len(requests.arrival_s)):
        now_s = requests.arrival_s[i]
        mean_tokens = _advance(now_s, engines, router, requests, mean_tokens, served_by)
        best, best_score = NONE, np.inf
        for g in range(len(engines.end_s) if requests.prompt[i] + requests.output[i] <= longest else 0):
            ttft_s, tpot_s, e2e_s, score = _foresee(g, i, engines, router, requests, mean_tokens, overhead_s)
            keeps = ttft_s <= ttft_slo_s and e2e_s <= slo_s[i] and (requests.output[i] <= 1 or tpot_s <= tpot_slo_s)
            if admission and not keeps:
                continue
            is_earlier = best != NONE and score == best_score and router.last_chosen[g] < router.last_chosen[best]
            if best == NONE or score < best_score or is_earlier:
                best, best_score = g, score
        served_by[i] = best
        if best != NONE:
            router.last_chosen[best] = i + 1
            _open_lease(best, i, router)
            submit(best, i, engines, requests)
    _advance(np.inf, engines, router, requests, mean_tokens, served_by)


@njit(cache=True, nogil=True)
def _advance(
    until_s: float, engines: Engines, router: Router, requests: Requests, mean_tokens: float, served_by: Ints
) -> float:
    """End all steps that end by then, in the order of their ends; those that follow begin. The mean of outputs."""
    num_groups = len(engines.end_s)
    for g in range(num_groups):
        if engines.end_s[g] == np.inf and has_work(g, engines):  # it was idle until its latest request
            at_s = requests.arrival_s[router.newest[g]]
            if at_s < until_s:
                begin_step(g, at_s, engines, requests)
    while True:
        g = int(np.argmin(engines.end_s))
        end_s = engines.end_s[g]
        if end_s > until_s or end_s == np.inf:
            return mean_tokens
        slot = engines.oldest[g]
        if end_step(g, engines, requests):
            for index in range(engines.size[g, slot]):
                i = engines.members[g, slot, index]
                if requests.finish_s[i] == end_s and served_by[i] == g:
                    _close_lease(g, i, router)
                    mean_tokens += _WEIGHT * (requests.output[i] - mean_tokens)
        _report(g, end_s, engines, router, requests)
        if has_work(g, engines):
            begin_step(g, end_s, engines, requests)


@njit(cache=True, nogil=True)
def _report(g: int, now_s: float, engines: Engines, router: Router, requests: Requests) -> None:
    num_running = engines.num_running[g]
    router.sequences[g] = num_running + engines.waiting[g]
    pending = engines.pending[g]
    if num_running:
        last = engines.running[g, num_running - 1]
        pending += max(0, requests.known[last] - requests.computed[last] - 1)
    router.pending[g] = pending
    context = 0
    for index in range(num_running):
        context += requests.computed[engines.running[g, index]]
    router.context[g] = context
    router.reported_s[g] = now_s


@njit(cache=True, nogil=True)
def _open_lease(g: int, i: int, router: Router) -> None:
    newest = router.newest[g]
    router.before[i] = newest
    if newest != NONE:
        router.behind[newest] = i
    router.newest[g] = i
    router.num_leases[g] += 1


@njit(cache=True, nogil=True)
def _close_lease(g: int, i: int, router: Router) -> None:
    before, behind = router.before[i], router.behind[i]
    if before != NONE:
        router.behind[before] = behind
    if behind != NONE:
        router.before[behind] = before
    else:
        router.newest[g] = before
    router.num_leases[g] -= 1


@njit(cache=True, nogil=True)
def _foresee(
    g: int, i: int, engines: Engines, router: Router, requests: Requests, mean_tokens: float, overhead_s: float
) -> tuple[float, float, float, float]:
    """Times to the first token, between tokens and to the last one, and the policy's score."""
    of, limits = router.latency[g], engines.limits[g]
    prompt, max_seqs = int(requests.prompt[i]), limits[SEQS]
    num_missing, since_s = router.num_leases[g] - router.sequences[g], router.reported_s[g] - _SUBMIT_S
    num_new = new_tokens = 0
    lease = router.newest[g]
    while lease != NONE and (num_new < num_missing or requests.arrival_s[lease] > since_s):
        num_new += 1
        new_tokens += requests.prompt[lease]
        lease = router.before[lease]
    num_sequences, pending = router.sequences[g] + num_new, router.pending[g] + new_tokens
    context = router.context[g]
    chunk = max(1, limits[TOKENS] - min(num_sequences, max_seqs))
    total = context + pending + prompt
    mean_context = total / (num_sequences + 1)
    num_slots = max(1, min(max_seqs, int(limits[BLOCKS] * limits[BLOCK_SIZE] / max(1.0, mean_context))))
    step_s = of[BASE] + of[DECODE] * min(num_sequences, max_seqs) + of[CONTEXT] * context
    wait_s = 0.0
    if num_sequences:
        wait_s = step_s / 2
        if pending:
            mean_prompt = pending / num_sequences
            wait_s += pending * (step_s / chunk + of[TOKEN] + of[PAIR] * mean_prompt / 2)
        num_surplus = num_sequences + 1 - num_slots
        if num_surplus > 0:
            wait_s += num_surplus / num_slots * mean_tokens * step_s
    prefill_s = -(-prompt // chunk) * step_s + of[TOKEN] * prompt + of[PAIR] * (prompt * (prompt / 2))
    num_decodes = min(num_sequences + 1, num_slots)
    tpot_s = of[BASE] + of[DECODE] * num_decodes + of[CONTEXT] * (total * num_decodes // (num_sequences + 1))
    num_tokens = min(float(requests.output[i]), mean_tokens)
    ttft_s = wait_s + prefill_s + overhead_s
    e2e_s = ttft_s + max(0.0, num_tokens - 1) * tpot_s
    return ttft_s, tpot_s, e2e_s, wait_s + num_tokens * tpot_s + prefill_s
