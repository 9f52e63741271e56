"""Groups that have a model that generates, compiled: the router's choice for each request, and what the groups do.

It follows `router/candidate_group.py`, `admission.py` and the balanced policy for requests of one sequence whose
prompts no group has cached, with a worker's report whenever one of its models has done something. A place may be given
any number of leases. Of models that answer in one pass no two requests are batched.
"""

import numpy as np

from headway.planner.placement.simulator.admission_kernel import (
    commit,
    is_harmful,
    predict,
    predict_pass,
)
from headway.planner.placement.simulator.borrowing import borrowing
from headway.planner.placement.simulator.dispatch_state import Demand, Places, Record, Router
from headway.planner.placement.simulator.engine_kernel import begin_step, end_step, has_work, submit
from headway.planner.placement.simulator.engine_state import (
    NONE,
    Counts,
    Engines,
    Lines,
    Requests,
)
from headway.planner.placement.simulator.kernel import Floats
from headway.planner.placement.simulator.line_kernel import answer_s, land, stand, start, start_s
from headway.planner.placement.simulator.predictor_kernel import LatencyPredictors, enter, leave, look

_WEIGHT = 0.05
"""As `router/lengths.py` has it."""


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
    """Serves all requests; sets their `first_s` and `finish_s`, infinite where they are refused, and their places.

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
                ttft_s, tpot_s, e2e_s, score = predict(p, i, places, engines, requests, router, demand)
                keeps = ttft_s <= demand.ttft_s[m] and e2e_s <= demand.slo_s[i]
                keeps &= requests.output[i] <= 1 or tpot_s <= demand.tpot_s[m]
                if demand.admission and keeps:
                    keeps = not is_harmful(p, i, tpot_s, places, engines, requests, router)
                is_turn = best != NONE and router.last_chosen[p] < router.last_chosen[best]
            else:
                ttft_s = tpot_s = 0.0
                soonest_s, score = predict_pass(p, i, places, engines, lines, requests, router, predictors, demand)
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
                commit(best, i, best_ttft_s, best_step_s, requests, router, demand)
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
    """Gives request i to a place."""
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
    """Advances all groups to `until_s`, in the order of time."""
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
    """The time of the next event in a group."""
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
    """Begins, gives up or answers a request that is answered in one pass; False where none is due."""
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
    """Notes whether a request that has ended kept its bounds."""
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
