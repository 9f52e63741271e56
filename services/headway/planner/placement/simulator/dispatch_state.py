"""What the compiled router knows: places, demands, leases and what it owes them; and what it notes of each request."""

from typing import NamedTuple

import numpy as np

from headway.planner.placement.simulator.engine_state import (
    NONE,
    Counts,
)
from headway.planner.placement.simulator.kernel import Flags, Floats, Ints

_INITIAL_TOKENS = 128.0
"""As `router/lengths.py` has it."""


class Places(NamedTuple):
    """All places: models on groups. Those of a group are neighbours, in its order.

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
    """The requests' demands: the model of each, [num_requests], and its bounds; infinite for none.

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
    """The router's commitments, [num_requests] each, as `router/interference.py` has them: when the first token is due,
    how long the rest of the output may take, its gaps, the longest step predicted since, prompts borne since."""

    first_token_by_s: Floats
    decode_budget_s: Floats
    num_gaps: Floats
    step_s: Floats
    borne_s: Floats


class Router(NamedTuple):
    """The router's view of all places.

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
    """The results: the place of each request, or NONE where it was refused or given up, and whether it kept its bounds,
    [num_requests] each; how many did not so far, [1]. `next_s` is when something happens in each group, [num_groups];
    infinite for never."""

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
