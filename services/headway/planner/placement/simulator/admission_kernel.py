"""What the compiled router predicts for a request at a place, and whom it would harm there.

It follows `router/latency_predictor.py`, `admission.py` and `interference.py`.
"""

import numpy as np

from headway.planner.placement.simulator.borrowing import borrowing
from headway.planner.placement.simulator.dispatch_state import Demand, Places, Router
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
    Engines,
    Lines,
    Requests,
)
from headway.planner.placement.simulator.kernel import Floats
from headway.planner.placement.simulator.predictor_kernel import LatencyPredictors, predict_answer

_SUBMIT_S = 0.02
"""As `router/dispatcher.py` has it."""


@borrowing
def _unreported(p: int, places: Places, requests: Requests, router: Router) -> tuple[int, int]:
    """Counts sequences and their tokens that were leased and are in no report."""
    num_missing = router.num_leases[p] - router.sequences[p]
    since_s = router.reported_s[places.group[p]] - _SUBMIT_S
    num_new = new_tokens = 0
    lease = router.newest[p]
    while lease != NONE and (num_new < num_missing or requests.arrival_s[lease] > since_s):
        num_new += 1
        new_tokens += requests.prompt[lease]
        lease = router.before[lease]
    return num_new, new_tokens


@borrowing
def _others_s(p: int, places: Places, engines: Engines, requests: Requests, router: Router, with_passes: bool) -> float:  # noqa: FBT001
    """Seconds that a step of each other model on the group takes that has something to do."""
    g, others_s = places.group[p], 0.0
    for other in range(places.start[g], places.start[g + 1]):
        if other == p:
            continue
        of = router.latency[other]
        if places.generates[other]:
            num_new, new_tokens = _unreported(other, places, requests, router)
            if router.sequences[other] + num_new:
                tokens = min(router.pending[other] + new_tokens, engines.limits[other, TOKENS])
                others_s += (
                    of[BASE]
                    + of[TOKEN] * tokens
                    + of[PAIR] * (tokens * (tokens / 2))
                    + of[DECODE] * router.running[other]
                    + of[CONTEXT] * router.context[other]
                )
        elif with_passes and router.num_leases[other]:
            others_s += of[BASE]
    return others_s


@borrowing
def predict_pass(
    p: int,
    i: int,
    places: Places,
    engines: Engines,
    lines: Lines,
    requests: Requests,
    router: Router,
    predictors: LatencyPredictors,
    demand: Demand,
) -> tuple[float, float]:
    """Predicts when a request is answered in one pass, and the policy's score."""
    g, now_s = places.group[p], requests.arrival_s[i]
    done_s = predict_answer(g, now_s, places.stage_s[p], lines.num_stages[g], predictors)
    others_s = _others_s(p, places, engines, requests, router, False)  # noqa: FBT003
    return done_s + demand.overhead_s - now_s + others_s, done_s - now_s + others_s


@borrowing
def predict(
    p: int, i: int, places: Places, engines: Engines, requests: Requests, router: Router, demand: Demand
) -> tuple[float, float, float, float]:
    """Predicts times to the first token, between tokens and to the last one, and the policy's score."""
    of, limits = router.latency[p], engines.limits[p]
    mean_tokens = router.mean_tokens[demand.model[i]]
    prompt, max_seqs = int(requests.prompt[i]), limits[SEQS]
    num_new, new_tokens = _unreported(p, places, requests, router)
    g, others_s = places.group[p], 0.0
    if places.start[g + 1] - places.start[g] > 1:
        others_s = _others_s(p, places, engines, requests, router, True)  # noqa: FBT003
    num_sequences, pending = router.sequences[p] + num_new, router.pending[p] + new_tokens
    context = router.context[p]
    chunk = max(1, limits[TOKENS] - min(num_sequences, max_seqs))
    total = context + pending + prompt
    mean_context = total / (num_sequences + 1)
    num_slots = max(1, min(max_seqs, int(limits[BLOCKS] * limits[BLOCK_SIZE] / max(1.0, mean_context))))
    step_s = others_s + of[BASE] + of[DECODE] * min(num_sequences, max_seqs) + of[CONTEXT] * context
    wait_s = others_s / 2
    if num_sequences:
        wait_s = step_s / 2
        if pending:
            mean_prompt = pending / num_sequences
            wait_s += pending * (step_s / chunk + of[TOKEN] + of[PAIR] * mean_prompt / 2)
        num_surplus = num_sequences + 1 - num_slots
        if num_surplus > 0:
            wait_s += num_surplus / num_slots * mean_tokens * step_s
    prefill_s = -(-prompt // chunk) * step_s + _compute_s(prompt, of)
    num_decodes = min(num_sequences + 1, num_slots)
    decode_s = of[BASE] + of[DECODE] * num_decodes + of[CONTEXT] * (total * num_decodes // (num_sequences + 1))
    tpot_s = others_s + decode_s
    num_tokens = min(float(requests.output[i]), mean_tokens)
    ttft_s = wait_s + prefill_s + demand.overhead_s
    sustained_s = tpot_s + of[CONTEXT] * (num_decodes * num_tokens / 2)
    e2e_s = ttft_s + max(0.0, num_tokens - 1) * sustained_s
    return ttft_s, sustained_s, e2e_s, wait_s + num_tokens * tpot_s + prefill_s


@borrowing
def _compute_s(prompt: int, of: Floats) -> float:
    """Seconds that a prompt adds to the steps that compute it."""
    return float(of[TOKEN] * prompt + of[PAIR] * (prompt * (prompt / 2)))


@borrowing
def is_harmful(
    p: int, i: int, step_s: float, places: Places, engines: Engines, requests: Requests, router: Router
) -> bool:
    """Whether a request that the place has admitted would be late for request i, with which steps take `step_s`."""
    of, limits, promised = router.latency[p], engines.limits[p], router.commitments
    prefill_s = _compute_s(int(requests.prompt[i]), of)
    lease = router.newest[p]
    while lease != NONE:
        gaps, budget_s = promised.num_gaps[lease], promised.decode_budget_s[lease]
        if promised.step_s[lease] * gaps + promised.borne_s[lease] <= budget_s and (
            max(promised.step_s[lease], step_s) * gaps + (promised.borne_s[lease] + prefill_s) > budget_s
        ):
            return True
        lease = router.before[lease]
    num_new, new_tokens = _unreported(p, places, requests, router)
    num_sequences, pending = router.sequences[p] + num_new, router.pending[p] + new_tokens
    others_s, g = 0.0, places.group[p]
    if places.start[g + 1] - places.start[g] > 1:
        others_s = _others_s(p, places, engines, requests, router, True)  # noqa: FBT003
    chunk = max(1, limits[TOKENS] - min(num_sequences, limits[SEQS]))
    own_s = others_s + of[BASE] + of[DECODE] * min(num_sequences, limits[SEQS]) + of[CONTEXT] * router.context[p]
    token_s = own_s / chunk + of[TOKEN] + of[PAIR] * (pending / max(1, num_sequences)) / 2
    begin_s, num_behind = requests.arrival_s[i] + own_s / 2, 0
    lease = router.newest[p]
    while lease != NONE and num_behind < pending:
        last = pending - num_behind + chunk - 1
        without_s = begin_s + token_s * min(last, pending)
        if without_s <= promised.first_token_by_s[lease] < begin_s + token_s * min(last, pending + requests.prompt[i]):
            return True
        num_behind += requests.prompt[lease]
        lease = router.before[lease]
    return False


@borrowing
def commit(p: int, i: int, ttft_s: float, step_s: float, requests: Requests, router: Router, demand: Demand) -> None:
    """Commits the place to request i's objectives; requests that are there bear what it brings."""
    m, promised = demand.model[i], router.commitments
    gaps = max(0.0, min(float(requests.output[i]), router.mean_tokens[m]) - 1)
    promised.first_token_by_s[i] = requests.arrival_s[i] + (min(demand.ttft_s[m], demand.slo_s[i]) - demand.overhead_s)
    if gaps > 0 and demand.tpot_s[m] < np.inf:
        promised.decode_budget_s[i] = demand.tpot_s[m] * gaps
    if gaps > 0 and demand.slo_s[i] < np.inf:
        promised.decode_budget_s[i] = min(promised.decode_budget_s[i], demand.slo_s[i] - ttft_s)
    promised.num_gaps[i], promised.step_s[i] = gaps, step_s
    prefill_s = _compute_s(int(requests.prompt[i]), router.latency[p])
    lease = router.newest[p]
    while lease != NONE:
        promised.step_s[lease] = max(promised.step_s[lease], step_s)
        promised.borne_s[lease] += prefill_s
        lease = router.before[lease]
