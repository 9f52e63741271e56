"""Requests and engines of a model that generates, as the arrays that the kernels read and write."""

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


class Requests(NamedTuple):
    """Of one model, in the order of their arrival: [num_requests] each. `after` is the next that waits in its group."""

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


class Engines(NamedTuple):
    """Of its groups: [num_groups, ...] each.

    `running` are the oldest first, `back` gave way, the next one last. The batches under way are a ring. `end_s` is
    when the step ends that is under way, infinite for none. `waiting` and `pending` were counted when it began:
    requests that wait, and tokens that they have to compute.
    """

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
    free_s: Floats
    members: Counts
    chunk: Counts
    size: Counts
    due_s: Floats
    oldest: Counts
    num_batches: Counts
    end_s: Floats
    waiting: Counts
    pending: Counts
    busy_s: Floats
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


def make_engines(limits: Counts, num_stages: Counts, stages: Floats) -> Engines:
    """`limits` [num_groups, NUM_LIMITS], `stages` [num_groups, max_stages, NUM_COEFFICIENTS]."""
    num_groups, max_stages = stages.shape[:2]
    max_seqs = int(limits[:, SEQS].max())
    zeros = np.zeros(num_groups, np.int64)
    lists = np.zeros((num_groups, max_seqs), np.int64)
    batches = np.zeros((num_groups, max_stages, max_seqs), np.int64)
    return Engines(
        limits=limits,
        num_stages=num_stages,
        stages=stages,
        running=lists,
        num_running=zeros,
        back=lists.copy(),
        num_back=zeros.copy(),
        first_waiting=np.full(num_groups, NONE, np.int64),
        last_waiting=np.full(num_groups, NONE, np.int64),
        num_waiting=zeros.copy(),
        free=limits[:, BLOCKS].copy(),
        free_s=np.full((num_groups, max_stages), -np.inf),
        members=batches,
        chunk=batches.copy(),
        size=np.zeros((num_groups, max_stages), np.int64),
        due_s=np.zeros((num_groups, max_stages)),
        oldest=zeros.copy(),
        num_batches=zeros.copy(),
        end_s=np.full(num_groups, np.inf),
        waiting=zeros.copy(),
        pending=zeros.copy(),
        busy_s=np.zeros(num_groups),
        num_steps=zeros.copy(),
    )
