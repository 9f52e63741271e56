"""Engines of a model that generates, step by step, compiled: the worker's scheduler with lengths in place of tokens.

It follows `engine/scheduler.py` for requests of one sequence each, without prefix cache, host tier, drafts and shards.
An engine has as many batches under way as its group has stages. A step begins where the one before ended: it makes up
as many batches as may be under way, which stand in the group's line, and ends when the oldest has left the last stage.
"""

import numpy as np

from headway.planner.placement.simulator.borrowing import borrowing
from headway.planner.placement.simulator.engine_state import (
    BLOCK_SIZE,
    CONTEXTS,
    DECODES,
    NONE,
    PAIRS,
    PREFILL,
    PREFILLED,
    SEQS,
    TOKENS,
    WATERMARK,
    Engines,
    Lines,
    Requests,
)
from headway.planner.placement.simulator.line_kernel import admit


@borrowing
def submit(p: int, i: int, engines: Engines, requests: Requests) -> None:
    """Appends request i to those that wait at place p."""
    if engines.first_waiting[p] == NONE:
        engines.first_waiting[p] = i
    else:
        requests.after[engines.last_waiting[p]] = i
    engines.last_waiting[p] = i
    engines.num_waiting[p] += 1


@borrowing
def has_work(p: int, engines: Engines) -> bool:
    return bool(engines.num_running[p] + engines.num_back[p] + engines.num_waiting[p])


@borrowing
def begin_step(p: int, now_s: float, engines: Engines, lines: Lines, requests: Requests) -> None:
    """Makes up as many batches as may be under way, and appends them to the line."""
    g = engines.group[p]
    if engines.num_batches[p] > engines.num_queued[p]:
        engines.end_s[p] = engines.due_s[p, engines.oldest[p]]
    while engines.num_batches[p] < engines.num_stages[p]:
        if not _make_batch(p, engines, requests):
            break
        engines.ready_s[p, (engines.oldest[p] + engines.num_batches[p]) % engines.num_stages[p]] = now_s
        engines.num_batches[p] += 1
        engines.num_queued[p] += 1
        lines.queued[g, (lines.next_queued[g] + lines.num_queued[g]) % lines.queued.shape[1]] = p
        lines.num_queued[g] += 1
    admit(g, engines, lines, requests.arrival_s)
    engines.waiting[p] = engines.num_waiting[p] + engines.num_back[p]
    pending = 0
    for index in range(engines.num_back[p]):
        pending += max(0, requests.known[engines.back[p, index]] - 1)
    i = engines.first_waiting[p]
    while i != NONE:
        pending += max(0, requests.known[i] - 1)
        i = requests.after[i]
    engines.pending[p] = pending


@borrowing
def end_step(p: int, engines: Engines, requests: Requests) -> int:
    """Processes the results of the oldest batch; returns how many requests have ended, whose `finish_s` is now set."""
    now_s, slot = engines.end_s[p], engines.oldest[p]
    num_ended = 0
    for index in range(engines.size[p, slot]):
        i = engines.members[p, slot, index]
        requests.num_in_flight[i] -= 1
        new = engines.chunk[p, slot, index]
        if new < 0:  # a chunk that samples nothing: it was counted when it departed
            continue
        requests.computed[i] += new
        if requests.known[i] == requests.prompt[i]:
            requests.first_s[i] = now_s
        requests.known[i] += 1
        if requests.known[i] - requests.prompt[i] == requests.output[i]:
            requests.finish_s[i] = now_s
            engines.free[p] += requests.held[i]
            num_ended += 1
    if num_ended:
        kept = 0
        for index in range(engines.num_running[p]):
            i = engines.running[p, index]
            if requests.finish_s[i] == np.inf:
                engines.running[p, kept] = i
                kept += 1
        engines.num_running[p] = kept
    engines.oldest[p] = (slot + 1) % engines.num_stages[p]
    engines.num_batches[p] -= 1
    engines.end_s[p] = np.inf
    engines.num_steps[p] += 1
    return num_ended


@borrowing
def _max_scheduled(p: int, num_waiting: int, engines: Engines, requests: Requests) -> int:
    """The most sequences of a batch, such that all batches are equal."""
    num_batches, max_seqs = engines.num_stages[p], engines.limits[p, SEQS]
    if num_batches == 1:
        return int(max_seqs)
    num_scheduled = num_busy = 0
    for index in range(engines.num_running[p]):
        i = engines.running[p, index]
        if not requests.is_prefilling[i]:
            num_scheduled += 1
            num_busy += requests.num_in_flight[i] > 0
    num_scheduled = min(num_scheduled + num_waiting, max_seqs)
    num_free, num_left = num_scheduled - num_busy, num_batches - engines.num_batches[p]
    return int(min(-(-num_scheduled // num_batches), -(-num_free // num_left)))


@borrowing
def _make_batch(p: int, engines: Engines, requests: Requests) -> bool:  # noqa: C901, PLR0912, PLR0915 - one step of a scheduler, whose parts share ten variables
    """Schedules a batch; False if there is nothing to schedule."""
    limits, running = engines.limits[p], engines.running[p]
    max_tokens, max_prefill, block_size = limits[TOKENS], limits[PREFILL], limits[BLOCK_SIZE]
    slot = (engines.oldest[p] + engines.num_batches[p]) % engines.num_stages[p]
    members, chunk = engines.members[p, slot], engines.chunk[p, slot]
    tokens = prefill = decodes = context = size = 0
    pairs = 0.0
    must_wait = False
    max_scheduled = _max_scheduled(p, 0, engines, requests)
    index = 0
    while index < engines.num_running[p] and not must_wait:
        i = running[index]
        if requests.num_in_flight[i]:
            if not requests.is_prefilling[i] or requests.is_sampling[i]:
                index += 1
                continue
        elif size >= max_scheduled and not requests.is_prefilling[i]:
            index += 1
            continue
        new = requests.known[i] - requests.computed[i]
        if new > 1:
            new = min(new, max_prefill - prefill)
        new = min(new, max_tokens - tokens)
        need = max(0, -(-(requests.computed[i] + new) // block_size) - requests.held[i]) if new else 0
        samples = new > 0 and requests.computed[i] + new == requests.known[i]
        requests.is_sampling[i] = samples  # also where there is no room: it then waits for what is in flight
        gone = False
        while need > engines.free[p] and engines.num_running[p] > 1:
            victim = running[engines.num_running[p] - 1]
            if requests.num_in_flight[victim]:
                must_wait = True
                break
            engines.num_running[p] -= 1
            engines.free[p] += requests.held[victim]
            requests.held[victim] = requests.computed[victim] = 0
            requests.num_preemptions[victim] += 1
            engines.back[p, engines.num_back[p]] = victim
            engines.num_back[p] += 1
            if victim == i:
                gone = True
                break
        if gone or must_wait:
            break
        engines.free[p] -= need
        requests.held[i] += need
        requests.is_prefilling[i] = not samples
        if new:
            if samples and new == 1:
                decodes += 1
                context += requests.computed[i]
            else:
                prefill += new
                pairs += new * (requests.computed[i] + new / 2)
            tokens += new
            members[size], chunk[size] = i, new if samples else -new
            size += 1
        index += 1
    num_waiting = engines.num_back[p] + engines.num_waiting[p]
    if num_waiting and not must_wait:
        max_scheduled = _max_scheduled(p, num_waiting, engines, requests)
        while engines.num_back[p] + engines.num_waiting[p]:
            num_running = engines.num_running[p]
            budget = min(max_tokens - tokens, max_prefill - prefill)
            if num_running and requests.is_prefilling[running[num_running - 1]]:
                break
            if budget <= 0 or size >= max_scheduled or num_running >= limits[SEQS]:
                break
            i = engines.back[p, engines.num_back[p] - 1] if engines.num_back[p] else engines.first_waiting[p]
            reserve = limits[WATERMARK] if num_running else 0
            wanted = requests.known[i] if requests.num_preemptions[i] else min(requests.known[i], budget)
            if engines.free[p] <= reserve or -(-wanted // block_size) + reserve > engines.free[p]:
                break
            if engines.num_back[p]:
                engines.num_back[p] -= 1
            else:
                engines.first_waiting[p] = requests.after[i]
                engines.num_waiting[p] -= 1
            running[num_running] = i
            engines.num_running[p] += 1
            new = requests.known[i]
            if new > 1:
                new = min(new, max_prefill - prefill)
            new = min(new, max_tokens - tokens)
            need = -(-new // block_size)
            engines.free[p] -= need
            requests.held[i] = need
            samples = new == requests.known[i]
            requests.is_sampling[i] = samples
            requests.is_prefilling[i] = not samples
            if samples and new == 1:
                decodes += 1
            else:
                prefill += new
                pairs += new * (new / 2)
            tokens += new
            members[size], chunk[size] = i, new if samples else -new
            size += 1
    if size == 0:
        return False
    for index in range(size):
        i = members[index]
        requests.num_in_flight[i] += 1
        requests.computed[i] -= min(chunk[index], 0)
    engines.size[p, slot] = size
    work = engines.work[p, slot]
    work[PREFILLED], work[PAIRS], work[DECODES], work[CONTEXTS] = prefill, pairs, decodes, context
    return True
