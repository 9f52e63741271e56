"""A group's pipeline and who is next in it, compiled, as `core/line.py` and the emulated devices' line have it.

Requests that are answered in one pass stand in the line themselves, and enter when the first stage is free. A batch of
a model that generates is made up when its step begins, and enters behind all that is in the pipeline as soon as no
request is in line that came before that.
"""

import numpy as np

from headway.planner.placement.simulator.borrowing import borrowing
from headway.planner.placement.simulator.engine_state import (
    BASE,
    CONTEXT,
    CONTEXTS,
    DECODE,
    DECODES,
    NONE,
    PAIR,
    PAIRS,
    PREFILLED,
    TOKEN,
    Engines,
    Lines,
    Requests,
)
from headway.planner.placement.simulator.kernel import Floats


@borrowing
def admit(g: int, engines: Engines, lines: Lines, arrival_s: Floats) -> None:
    """Let the batches in that no request in line came before."""
    first = lines.first[g]
    oldest_s = arrival_s[first] if first != NONE else np.inf
    while lines.num_queued[g]:
        p = lines.queued[g, lines.next_queued[g]]
        slot = (engines.oldest[p] + engines.num_batches[p] - engines.num_queued[p]) % engines.num_stages[p]
        if engines.ready_s[p, slot] > oldest_s:
            return
        lines.next_queued[g] = (lines.next_queued[g] + 1) % lines.queued.shape[1]
        lines.num_queued[g] -= 1
        engines.num_queued[p] -= 1
        work, time_s = engines.work[p, slot], engines.ready_s[p, slot]
        for stage in range(lines.num_stages[g]):
            of = engines.stages[p, stage]
            decode_s = of[BASE] + of[DECODE] * work[DECODES] + of[CONTEXT] * work[CONTEXTS]
            seconds = decode_s + of[TOKEN] * work[PREFILLED] + of[PAIR] * work[PAIRS]
            time_s = max(time_s, lines.free_s[g, stage]) + seconds
            lines.free_s[g, stage] = time_s
            lines.busy_s[g] += seconds
        engines.due_s[p, slot] = time_s
        if slot == engines.oldest[p]:
            engines.end_s[p] = time_s


@borrowing
def stand(g: int, i: int, lines: Lines, requests: Requests) -> None:
    """Request i, which is answered in one pass, stands in line."""
    requests.after[i] = NONE
    if lines.first[g] == NONE:
        lines.first[g] = i
    else:
        requests.after[lines.last[g]] = i
    lines.last[g] = i


@borrowing
def start_s(g: int, lines: Lines, arrival_s: Floats) -> float:
    """Returns when the next request in line enters; infinite for none."""
    first = lines.first[g]
    return max(arrival_s[first], lines.free_s[g, 0]) if first != NONE else np.inf


@borrowing
def start(g: int, stage_s: Floats, deadline_s: float, engines: Engines, lines: Lines, requests: Requests) -> bool:
    """The next request in line enters, and its `finish_s` is set; False where it would be late: then it only leaves."""
    i = lines.first[g]
    lines.first[g] = requests.after[i]
    time_s = requests.arrival_s[i]
    for stage in range(lines.num_stages[g]):
        time_s = max(time_s, lines.free_s[g, stage]) + stage_s[stage]
    in_time = time_s <= deadline_s
    if in_time:
        leaves_s = requests.arrival_s[i]
        for stage in range(lines.num_stages[g]):
            leaves_s = max(leaves_s, lines.free_s[g, stage]) + stage_s[stage]
            lines.free_s[g, stage] = leaves_s
            lines.busy_s[g] += stage_s[stage]
        requests.finish_s[i] = time_s
        requests.after[i] = NONE
        if lines.first_away[g] == NONE:
            lines.first_away[g] = i
        else:
            requests.after[lines.last_away[g]] = i
        lines.last_away[g] = i
    admit(g, engines, lines, requests.arrival_s)
    return bool(in_time)


@borrowing
def answer_s(g: int, lines: Lines, finish_s: Floats) -> float:
    """Returns when the next answer of those under way is there; infinite for none."""
    away = lines.first_away[g]
    return finish_s[away] if away != NONE else np.inf


@borrowing
def land(g: int, lines: Lines, requests: Requests) -> int:
    """The request whose answer is there."""
    i = lines.first_away[g]
    lines.first_away[g] = requests.after[i]
    return int(i)
