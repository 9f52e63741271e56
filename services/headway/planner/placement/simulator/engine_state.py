"""Requests, engines and the lines of groups, as the arrays that the kernels read and write.

A place is a model on a group; those of a group are neighbours.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.planner.placement.simulator.kernel import Flags, Floats, Ints

NONE = -1
Counts = NDArray[np.int64]

NUM_LIMITS = 6
BLOCKS, BLOCK_SIZE, SEQS, TOKENS, PREFILL, WATERMARK = range(NUM_LIMITS)
"""Of an engine: blocks, tokens of a block, sequences, tokens of a step, prompt tokens of a batch, blocks that admission
leaves over."""

NUM_COEFFICIENTS = 5
BASE, TOKEN, PAIR, DECODE, CONTEXT = range(NUM_COEFFICIENTS)
"""Of a latency model; see `core.latency`."""

NUM_WORK = 4
PREFILLED, PAIRS, DECODES, CONTEXTS = range(NUM_WORK)
"""Of a batch: what the coefficients but `BASE` are for."""


class Requests(NamedTuple):
    """The requests in the order of their arrival, as arrays of [num_requests].

    `after` is the next that waits at its place; of one that is answered in one pass, the next in its group's line, then
    the next that is under way there.
    """

    arrival_s: Floats
    prompt: Ints
    output: Ints
    first_s: Floats
    finish_s: Floats
    known: Counts
    computed: Counts
    held: Counts
    num_in_flight: Counts
    is_prefilling: Flags
    is_sampling: Flags
    num_preemptions: Ints
    after: Counts


class Lines(NamedTuple):
    """The queues of groups, as arrays of [num_groups, ...].

    `free_s` is when each stage falls free. `first` and `last` are the requests in line that are answered in one pass,
    `first_away` and `last_away` those under way. Batches of models that generate, which wait for requests that came
    before them, are a ring: `queued` [num_groups, places] has their places, `next_queued` the oldest of them.
    """

    num_stages: Counts
    free_s: Floats
    busy_s: Floats
    first: Counts
    last: Counts
    first_away: Counts
    last_away: Counts
    queued: Counts
    next_queued: Counts
    num_queued: Counts


class Engines(NamedTuple):
    """The engines of places, as arrays of [num_places, ...]; those of models that answer in one pass are empty.

    `running` are the oldest first, `back` gave way, the next one last. The batches under way are a ring, of which the
    latest `num_queued` wait to enter the first stage; `work` is what each computes: prompt tokens, their pairs,
    decodes, context. `end_s` is when the step ends that is under way, infinite for none, or while that is not known.
    `waiting` and `pending` were counted when it began: requests that wait, and tokens that they have to compute.
    """

    group: Counts
    limits: Counts
    num_stages: Counts
    stages: Floats
    running: Counts
    num_running: Counts
    back: Counts
    num_back: Counts
    first_waiting: Counts
    last_waiting: Counts
    num_waiting: Counts
    free: Counts
    members: Counts
    chunk: Counts
    size: Counts
    work: Floats
    ready_s: Floats
    due_s: Floats
    oldest: Counts
    num_batches: Counts
    num_queued: Counts
    end_s: Floats
    waiting: Counts
    pending: Counts
    num_steps: Counts


def make_requests(arrival_s: Floats, prompt: Ints, output: Ints) -> Requests:
    count = len(arrival_s)
    return Requests(
        arrival_s=arrival_s,
        prompt=prompt,
        output=output,
        first_s=np.full(count, np.inf),
        finish_s=np.full(count, np.inf),
        known=prompt.astype(np.int64),
        computed=np.zeros(count, np.int64),
        held=np.zeros(count, np.int64),
        num_in_flight=np.zeros(count, np.int64),
        is_prefilling=np.zeros(count, np.bool_),
        is_sampling=np.zeros(count, np.bool_),
        num_preemptions=np.zeros(count, np.int32),
        after=np.full(count, NONE, np.int64),
    )


def make_lines(num_stages: Counts, places_of_group: int) -> Lines:
    """Args:
    num_stages: [num_groups].
    places_of_group: of the group that has most.
    """
    num_groups, max_stages = len(num_stages), int(num_stages.max())
    zeros, none = np.zeros(num_groups, np.int64), np.full(num_groups, NONE, np.int64)
    return Lines(
        num_stages=num_stages,
        free_s=np.full((num_groups, max_stages), -np.inf),
        busy_s=np.zeros(num_groups),
        first=none,
        last=none.copy(),
        first_away=none.copy(),
        last_away=none.copy(),
        queued=np.zeros((num_groups, places_of_group * max_stages), np.int64),
        next_queued=zeros,
        num_queued=zeros.copy(),
    )


def make_engines(group: Counts, limits: Counts, num_stages: Counts, stages: Floats) -> Engines:
    """`limits` [num_places, NUM_LIMITS], `stages` [num_places, max_stages, NUM_COEFFICIENTS]."""
    num_places, max_stages = stages.shape[:2]
    max_seqs = int(limits[:, SEQS].max())
    zeros = np.zeros(num_places, np.int64)
    lists = np.zeros((num_places, max_seqs), np.int64)
    batches = np.zeros((num_places, max_stages, max_seqs), np.int64)
    return Engines(
        group=group,
        limits=limits,
        num_stages=num_stages,
        stages=stages,
        running=lists,
        num_running=zeros,
        back=lists.copy(),
        num_back=zeros.copy(),
        first_waiting=np.full(num_places, NONE, np.int64),
        last_waiting=np.full(num_places, NONE, np.int64),
        num_waiting=zeros.copy(),
        free=limits[:, BLOCKS].copy(),
        members=batches,
        chunk=batches.copy(),
        size=np.zeros((num_places, max_stages), np.int64),
        work=np.zeros((num_places, max_stages, NUM_WORK)),
        ready_s=np.zeros((num_places, max_stages)),
        due_s=np.zeros((num_places, max_stages)),
        oldest=zeros.copy(),
        num_batches=zeros.copy(),
        num_queued=zeros.copy(),
        end_s=np.full(num_places, np.inf),
        waiting=zeros.copy(),
        pending=zeros.copy(),
        num_steps=zeros.copy(),
    )
