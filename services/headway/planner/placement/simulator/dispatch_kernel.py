"""Groups that have a model that generates, compiled: the router's choice for each request, and what the groups do.

It follows `router/candidate_group.py`, `admission.py` and the balanced policy for requests of one sequence whose
prompts no group has cached, with a worker's report whenever one of its models has done something. A place may be given
any number of leases. Of models that answer in one pass no two requests are batched.
"""

from typing import NamedTuple

import numpy as np

from headway.planner.placement.simulator.borrowing import borrowing
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
    Lines,
    Requests,
)
from headway.planner.placement.simulator.kernel import Flags, Floats, Ints
from headway.planner.placement.simulator.line_kernel import answer_s, land, stand, start, start_s
from headway.planner.placement.simulator.predictor_kernel import LatencyPredictors, enter, leave, look, predict_answer

_SUBMIT_S = 0.02
_INITIAL_TOKENS = 128.0
_WEIGHT = 0.05
"""As `router/dispatcher.py` and `router/lengths.py` have them."""


class Places(NamedTuple):
    """Models on groups; those of a group are neighbours, in its order.

    Of group g there are `[start[g], start[g + 1])`; of model m `of_model[model_start[m]:model_start[m + 1]]`, by group.
    Of each place [num_places, ...]: group and model, whether that generates, and seconds of one pass in each stage.
    """

    start: Counts
    of_model: Counts
    model_start: Counts
    group: Counts
    model: Counts
    generates: Flags
    stage_s: Floats


class Demand(NamedTuple):
    """The requests as asked for: the model of each, [num_requests], and its bounds; infinite for none.

    `slo_s` of the whole answers, [num_requests]; of first tokens and between them, [num_models]. `longest` are prompt
    and output tokens together, [num_models]; the gateway refuses what has more. `overhead_s` is what the router adds to
    what it predicts of a first token and of a whole answer; one pass has so much less time on its group. `admission`:
    refuse at once what is predicted to miss a bound, and give up what can only be late.
    """

    model: Ints
    slo_s: Floats
    ttft_s: Floats
    tpot_s: Floats
    longest: Counts
    overhead_s: float
    admission: bool


class Commitments(NamedTuple):
    """What the router has promised, [num_requests] each, as `router/interference.py` has it: by when there is a first
    token, how long the rest of the output may take, its gaps, the longest step predicted since, prompts borne since."""

    first_token_by_s: Floats
    decode_budget_s: Floats
    num_gaps: Floats
    step_s: Floats
    borne_s: Floats


class Router(NamedTuple):
    """The router's view of groups.

    Of each place its own latency model, [num_places, NUM_COEFFICIENTS]; of its latest report, [num_places]: sequences
    that run or wait, those that run, their tokens that are to be computed, the context of those that run; the leases
    that have not ended: the newest and their number, and of each lease the one before and the one behind it,
    [num_requests]. When each group's latest report came, [num_groups]. The mean of outputs, [num_models].
    """

    latency: Floats
    sequences: Counts
    running: Counts
    pending: Counts
    context: Counts
    reported_s: Floats
    newest: Counts
    num_leases: Counts
    before: Counts
    behind: Counts
    last_chosen: Counts
    mean_tokens: Floats
    commitments: Commitments


class Record(NamedTuple):
    """What is filled in: the place of each request, or NONE where it was refused or given up, and whether it kept its
    bounds, [num_requests] each; how many did not so far, [1]. `next_s` is when something happens in each group,
    [num_groups]; infinite for never.
    """

    served_by: Counts
    is_met: Flags
    missed: Counts
    next_s: Floats


def make_router(latency: Floats, *, num_groups: int, num_models: int, num_requests: int) -> Router:
    zeros = np.zeros(len(latency), np.int64)
    return Router(
        latency=latency,
        sequences=zeros,
        running=zeros.copy(),
        pending=zeros.copy(),
        context=zeros.copy(),
        reported_s=np.zeros(num_groups),
        newest=np.full(len(latency), NONE, np.int64),
        num_leases=zeros.copy(),
        before=np.full(num_requests, NONE, np.int64),
        behind=np.full(num_requests, NONE, np.int64),
        last_chosen=zeros.copy(),
        mean_tokens=np.full(num_models, _INITIAL_TOKENS),
        commitments=Commitments(
            first_token_by_s=np.full(num_requests, np.inf),
            decode_budget_s=np.full(num_requests, np.inf),
            num_gaps=np.zeros(num_requests),
            step_s=np.zeros(num_requests),
            borne_s=np.zeros(num_requests),
        ),
    )


@borrowing
def serve_together(  # noqa: C901, PLR0912 - one loop over requests, whose parts share all arrays
    places: Places,
    engines: Engines,
    lines: Lines,
    requests: Requests,
    router: Router,
    predictors: LatencyPredictors,
    demand: Demand,
    record: Record,
    bounds: Counts,
    limits: Counts,
    missed: Counts,
) -> bool:
    """Serve all requests; sets their `first_s` and `finish_s`, infinite where they are refused, and their places.

    False where it stopped since too many missed.

    Args:
        bounds: requests by which each part of the trace ends; the last is their number.
        limits: misses of requests up to the end of each part beyond which there is no point in going on.
        missed: filled with the misses that are known when each part ends, or the run.
    """
    part = 0
    for i in range(len(requests.arrival_s)):
        while i == bounds[part]:
            missed[part:] = record.missed[0]
            if record.missed[0] > limits[part]:
                return False
            part += 1
        now_s, m = requests.arrival_s[i], demand.model[i]
        _advance(now_s, places, engines, lines, requests, router, predictors, demand, record)
        best, best_score, best_ttft_s, best_step_s = NONE, np.inf, 0.0, 0.0
        for index in range(places.model_start[m], places.model_start[m + 1]):
            p = places.of_model[index]
            if places.generates[p]:
                if requests.prompt[i] + requests.output[i] > demand.longest[m]:
                    continue
                ttft_s, tpot_s, e2e_s, score = _predict(p, i, places, engines, requests, router, demand)
                keeps = ttft_s <= demand.ttft_s[m] and e2e_s <= demand.slo_s[i]
                keeps &= requests.output[i] <= 1 or tpot_s <= demand.tpot_s[m]
                if demand.admission and keeps:
                    keeps = not _is_harmful(p, i, tpot_s, places, engines, requests, router)
                is_turn = best != NONE and router.last_chosen[p] < router.last_chosen[best]
            else:
                ttft_s = tpot_s = 0.0
                soonest_s, score = _predict_pass(p, i, places, engines, lines, requests, router, predictors, demand)
                keeps, is_turn = soonest_s <= demand.slo_s[i], False
            if demand.admission and not keeps:
                continue
            if best == NONE or score < best_score or (score == best_score and is_turn):
                best, best_score, best_ttft_s, best_step_s = p, score, ttft_s, tpot_s
        record.served_by[i] = best
        if best == NONE:
            record.missed[0] += 1
        else:
            if places.generates[best]:
                _commit(best, i, best_ttft_s, best_step_s, requests, router, demand)
            _lease(best, i, places, engines, lines, requests, router, predictors, record)
    _advance(np.inf, places, engines, lines, requests, router, predictors, demand, record)
    missed[part:] = record.missed[0]
    return True


@borrowing
def _lease(
    p: int,
    i: int,
    places: Places,
    engines: Engines,
    lines: Lines,
    requests: Requests,
    router: Router,
    predictors: LatencyPredictors,
    record: Record,
) -> None:
    """Request i goes to a place."""
    g = places.group[p]
    router.last_chosen[p] = i + 1
    newest = router.newest[p]
    router.before[i] = newest
    if newest != NONE:
        router.behind[newest] = i
    router.newest[p] = i
    router.num_leases[p] += 1
    if places.generates[p]:
        submit(p, i, engines, requests)
    else:
        now_s = requests.arrival_s[i]
        enter(g, i, now_s, places.stage_s[p], lines.num_stages[g], predictors)
        stand(g, i, lines, requests)
        record.next_s[g] = min(record.next_s[g], start_s(g, lines, requests.arrival_s))


@borrowing
def _release(
    p: int,
    i: int,
    now_s: float,
    is_complete: bool,  # noqa: FBT001
    places: Places,
    requests: Requests,
    router: Router,
    predictors: LatencyPredictors,
) -> None:
    g = places.group[p]
    before, behind = router.before[i], router.behind[i]
    if before != NONE:
        router.behind[before] = behind
    if behind != NONE:
        router.before[behind] = before
    else:
        router.newest[p] = before
    router.num_leases[p] -= 1
    if places.generates[p]:
        look(g, now_s, predictors)
        mean_tokens = router.mean_tokens[places.model[p]]
        router.mean_tokens[places.model[p]] = mean_tokens + _WEIGHT * (requests.output[i] - mean_tokens)
    else:
        leave(g, i, now_s, is_complete, predictors)


@borrowing
def _advance(  # noqa: C901 - one loop over events, whose parts share all arrays
    until_s: float,
    places: Places,
    engines: Engines,
    lines: Lines,
    requests: Requests,
    router: Router,
    predictors: LatencyPredictors,
    demand: Demand,
    record: Record,
) -> None:
    """Advances all groups to a time, event by event."""
    for p in range(len(engines.end_s)):
        if engines.num_batches[p] == 0 and has_work(p, engines):  # it was idle until its latest request
            at_s = requests.arrival_s[router.newest[p]]
            if at_s < until_s:
                begin_step(p, at_s, engines, lines, requests)
                g = engines.group[p]
                record.next_s[g] = _next_s(g, places.start, engines.end_s, lines, requests.arrival_s, requests.finish_s)
    while True:
        g = int(np.argmin(record.next_s))
        now_s = record.next_s[g]
        if now_s > until_s or now_s == np.inf:
            return
        has_passes = lines.first[g] != NONE or lines.first_away[g] != NONE
        if not (has_passes and _pass(g, now_s, places, engines, lines, requests, router, predictors, demand, record)):
            p = places.start[g]
            while engines.end_s[p] > now_s:
                p += 1
            slot = engines.oldest[p]
            if end_step(p, engines, requests):
                for index in range(engines.size[p, slot]):
                    i = engines.members[p, slot, index]
                    if requests.finish_s[i] == now_s:
                        _note(i, requests, demand, record)
                        _release(p, i, now_s, True, places, requests, router, predictors)  # noqa: FBT003
            _report(p, engines, requests, router)
            if has_work(p, engines):
                begin_step(p, now_s, engines, lines, requests)
        router.reported_s[g] = now_s
        record.next_s[g] = _next_s(g, places.start, engines.end_s, lines, requests.arrival_s, requests.finish_s)


@borrowing
def _next_s(g: int, first: Counts, end_s: Floats, lines: Lines, arrival_s: Floats, finish_s: Floats) -> float:
    """Returns when something happens next in a group."""
    next_s = min(start_s(g, lines, arrival_s), answer_s(g, lines, finish_s))
    for p in range(first[g], first[g + 1]):
        next_s = min(next_s, end_s[p])
    return next_s


@borrowing
def _pass(
    g: int,
    now_s: float,
    places: Places,
    engines: Engines,
    lines: Lines,
    requests: Requests,
    router: Router,
    predictors: LatencyPredictors,
    demand: Demand,
    record: Record,
) -> bool:
    """A request that is answered in one pass begins, is given up, or has its answer now; False where none does."""
    if start_s(g, lines, requests.arrival_s) <= now_s:
        i = lines.first[g]
        p, deadline_s = record.served_by[i], np.inf
        if demand.admission:
            deadline_s = requests.arrival_s[i] + (demand.slo_s[i] - demand.overhead_s)
        if not start(g, places.stage_s[p], deadline_s, engines, lines, requests):
            record.served_by[i] = NONE
            record.missed[0] += 1
            _release(p, i, now_s, False, places, requests, router, predictors)  # noqa: FBT003
        return True
    if answer_s(g, lines, requests.finish_s) <= now_s:
        i = land(g, lines, requests)
        requests.first_s[i] = now_s
        _note(i, requests, demand, record)
        _release(record.served_by[i], i, now_s, True, places, requests, router, predictors)  # noqa: FBT003
        return True
    return False


@borrowing
def _note(i: int, requests: Requests, demand: Demand, record: Record) -> None:
    """Whether a request that has ended kept its bounds."""
    m = demand.model[i]
    first_s, finish_s = requests.first_s[i], requests.finish_s[i]
    is_met = first_s + demand.overhead_s - requests.arrival_s[i] <= demand.ttft_s[m]
    is_met &= finish_s + demand.overhead_s - requests.arrival_s[i] <= demand.slo_s[i]
    if requests.output[i] > 1:
        is_met &= (finish_s - first_s) / (requests.output[i] - 1.0) <= demand.tpot_s[m]
    record.is_met[i] = is_met
    record.missed[0] += not is_met


@borrowing
def _report(p: int, engines: Engines, requests: Requests, router: Router) -> None:
    num_running = engines.num_running[p]
    router.running[p] = num_running
    router.sequences[p] = num_running + engines.waiting[p]
    pending = engines.pending[p]
    if num_running:
        last = engines.running[p, num_running - 1]
        pending += max(0, requests.known[last] - requests.computed[last] - 1)
    router.pending[p] = pending
    context = 0
    for index in range(num_running):
        context += requests.computed[engines.running[p, index]]
    router.context[p] = context


@borrowing
def _unreported(p: int, places: Places, requests: Requests, router: Router) -> tuple[int, int]:
    """Sequences and their tokens that were leased and are in no report."""
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
    """Returns the step times of the other models on the group that have something to do."""
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
def _predict_pass(
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
def _predict(
    p: int, i: int, places: Places, engines: Engines, requests: Requests, router: Router, demand: Demand
) -> tuple[float, float, float, float]:
    """Times to the first token, between tokens and to the last one, and the policy's score."""
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
    """Returns the seconds that a prompt adds to the steps that compute it."""
    return float(of[TOKEN] * prompt + of[PAIR] * (prompt * (prompt / 2)))


@borrowing
def _is_harmful(
    p: int, i: int, step_s: float, places: Places, engines: Engines, requests: Requests, router: Router
) -> bool:
    """Whether somebody whom the place has admitted would be late for request i, with which steps take `step_s`."""
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
def _commit(p: int, i: int, ttft_s: float, step_s: float, requests: Requests, router: Router, demand: Demand) -> None:
    """The place owes request i its objectives; those who are there bear what it brings."""
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
