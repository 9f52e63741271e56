"""Engines of a model that generates, step by step, compiled: the worker's scheduler with lengths in place of tokens.

It follows `engine/scheduler.py` for requests of one sequence each, without prefix cache, host tier, drafts and shards.
An engine has as many batches under way as its group has stages. A step begins where the one before ended: it starts as
many batches as may be under way, and ends when the oldest has left the last stage.
"""

import numpy as np
from numba import njit

from headway.planner.placement.simulator.engine_state import (
    BASE,
    BLOCK_SIZE,
    CONTEXT,
    DECODE,
    NONE,
    PAIR,
    PREFILL,
    SEQS,
    TOKEN,
    TOKENS,
    WATERMARK,
    Engines,
    Requests,
)


@njit(cache=True, nogil=True)
def submit(g: int, i: int, engines: Engines, requests: Requests) -> None:
    """Request i waits in group g, behind all others."""
    if engines.first_waiting[g] == NONE:
        engines.first_waiting[g] = i
    else:
        requests.after[engines.last_waiting[g]] = i
    engines.last_waiting[g] = i
    engines.num_waiting[g] += 1


@njit(cache=True, nogil=True)
def has_work(g: int, engines: Engines) -> bool:
    return bool(engines.num_running[g] + engines.num_back[g] + engines.num_waiting[g])


@njit(cache=True, nogil=True)
def begin_step(g: int, now_s: float, engines: Engines, requests: Requests) -> None:
    """Start as many batches as may be under way."""
    while engines.num_batches[g] < engines.num_stages[g]:
        if not _start_batch(g, now_s, engines, requests):
            break
    engines.end_s[g] = engines.due_s[g, engines.oldest[g]] if engines.num_batches[g] else np.inf
    engines.waiting[g] = engines.num_waiting[g] + engines.num_back[g]
    pending = 0
    for index in range(engines.num_back[g]):
        pending += max(0, requests.known[engines.back[g, index]] - 1)
    i = engines.first_waiting[g]
    while i != NONE:
        pending += max(0, requests.known[i] - 1)
        i = requests.after[i]
    engines.pending[g] = pending


@njit(cache=True, nogil=True)
def end_step(g: int, engines: Engines, requests: Requests) -> int:
    """Book what the oldest batch brought; the number of requests that have ended, whose `finish_s` is now set."""
    now_s, slot = engines.end_s[g], engines.oldest[g]
    num_ended = 0
    for index in range(engines.size[g, slot]):
        i = engines.members[g, slot, index]
        requests.num_in_flight[i] -= 1
        new = engines.chunk[g, slot, index]
        if new < 0:  # a chunk that samples nothing: it was counted when it departed
            continue
        requests.computed[i] += new
        if requests.known[i] == requests.prompt[i]:
            requests.first_s[i] = now_s
        requests.known[i] += 1
        if requests.known[i] - requests.prompt[i] == requests.output[i]:
            requests.finish_s[i] = now_s
            engines.free[g] += requests.held[i]
            num_ended += 1
    if num_ended:
        kept = 0
        for index in range(engines.num_running[g]):
            i = engines.running[g, index]
            if requests.finish_s[i] == np.inf:
                engines.running[g, kept] = i
                kept += 1
        engines.num_running[g] = kept
    engines.oldest[g] = (slot + 1) % engines.num_stages[g]
    engines.num_batches[g] -= 1
    engines.end_s[g] = np.inf
    engines.num_steps[g] += 1
    return num_ended


@njit(cache=True, nogil=True)
def _max_shares(g: int, num_waiting: int, engines: Engines, requests: Requests) -> int:
    """Shares of a batch, so that all batches are equal."""
    num_batches, max_seqs = engines.num_stages[g], engines.limits[g, SEQS]
    if num_batches == 1:
        return int(max_seqs)
    num_shares = num_busy = 0
    for index in range(engines.num_running[g]):
        i = engines.running[g, index]
        if not requests.is_prefilling[i]:
            num_shares += 1
            num_busy += requests.num_in_flight[i] > 0
    num_shares = min(num_shares + num_waiting, max_seqs)
    num_free, num_left = num_shares - num_busy, num_batches - engines.num_batches[g]
    return int(min(-(-num_shares // num_batches), -(-num_free // num_left)))


@njit(cache=True, nogil=True)
def _start_batch(g: int, now_s: float, engines: Engines, requests: Requests) -> bool:  # noqa: C901, PLR0912, PLR0915 - one step of a scheduler, whose parts share ten variables
    """Schedule a batch, and let it into the pipeline; False if there is nothing to schedule."""
    limits, running = engines.limits[g], engines.running[g]
    max_tokens, max_prefill, block_size = limits[TOKENS], limits[PREFILL], limits[BLOCK_SIZE]
    slot = (engines.oldest[g] + engines.num_batches[g]) % engines.num_stages[g]
    members, chunk = engines.members[g, slot], engines.chunk[g, slot]
    tokens = prefill = decodes = context = size = 0
    pairs = 0.0
    must_wait = False
    max_shares = _max_shares(g, 0, engines, requests)
    index = 0
    while index < engines.num_running[g] and not must_wait:
        i = running[index]
        if requests.num_in_flight[i]:
            if not requests.is_prefilling[i] or requests.is_sampling[i]:
                index += 1
                continue
        elif size >= max_shares and not requests.is_prefilling[i]:
            index += 1
            continue
        new = requests.known[i] - requests.computed[i]
        if new > 1:
            new = min(new, max_prefill - prefill)
        new = min(new, max_tokens - tokens)
        need = max(0, -(-(requests.computed[i] + new) // block_size) - requests.held[i]) if new else 0
        gone = False
        while need > engines.free[g] and engines.num_running[g] > 1:
            victim = running[engines.num_running[g] - 1]
            if requests.num_in_flight[victim]:
                must_wait = True
                break
            engines.num_running[g] -= 1
            engines.free[g] += requests.held[victim]
            requests.held[victim] = requests.computed[victim] = 0
            requests.num_preemptions[victim] += 1
            engines.back[g, engines.num_back[g]] = victim
            engines.num_back[g] += 1
            if victim == i:
                gone = True
                break
        if gone or must_wait:
            break
        engines.free[g] -= need
        requests.held[i] += need
        samples = new > 0 and requests.computed[i] + new == requests.known[i]
        requests.is_sampling[i] = samples
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
    num_waiting = engines.num_back[g] + engines.num_waiting[g]
    if num_waiting and not must_wait:
        max_shares = _max_shares(g, num_waiting, engines, requests)
        while engines.num_back[g] + engines.num_waiting[g]:
            num_running = engines.num_running[g]
            budget = min(max_tokens - tokens, max_prefill - prefill)
            if num_running and requests.is_prefilling[running[num_running - 1]]:
                break
            if budget <= 0 or size >= max_shares or num_running >= limits[SEQS]:
                break
            i = engines.back[g, engines.num_back[g] - 1] if engines.num_back[g] else engines.first_waiting[g]
            reserve = limits[WATERMARK] if num_running else 0
            wanted = requests.known[i] if requests.num_preemptions[i] else min(requests.known[i], budget)
            if engines.free[g] <= reserve or -(-wanted // block_size) + reserve > engines.free[g]:
                break
            if engines.num_back[g]:
                engines.num_back[g] -= 1
            else:
                engines.first_waiting[g] = requests.after[i]
                engines.num_waiting[g] -= 1
            running[num_running] = i
            engines.num_running[g] += 1
            new = requests.known[i]
            if new > 1:
                new = min(new, max_prefill - prefill)
            new = min(new, max_tokens - tokens)
            need = -(-new // block_size)
            engines.free[g] -= need
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
    engines.size[g, slot] = size
    engines.num_batches[g] += 1
    time_s = now_s
    for stage in range(engines.num_stages[g]):
        of = engines.stages[g, stage]
        seconds = (of[BASE] + of[DECODE] * decodes + of[CONTEXT] * context) + of[TOKEN] * prefill + of[PAIR] * pairs
        time_s = max(time_s, engines.free_s[g, stage]) + seconds
        engines.free_s[g, stage] = time_s
        engines.busy_s[g] += seconds
    engines.due_s[g, slot] = time_s
    return True
