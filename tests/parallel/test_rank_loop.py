"""Stages and heads in the order in which ranks take them up: never one that waits for what another holds back."""

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.parallel_config import ParallelConfig
from headway.runner.parallel.rank_loop import run_rank
from headway.runner.step_message import StepKind, StepMessage

TIMEOUT_S = 20.0


class Meeting:
    """Where ranks wait for each other in every layer, and all of them for each head."""

    def __init__(self, parallel: ParallelConfig) -> None:
        self.stages = [threading.Barrier(parallel.tp, timeout=TIMEOUT_S) for _ in range(parallel.pp)]
        self.all = threading.Barrier(parallel.num_ranks, timeout=TIMEOUT_S)
        self.links: dict[int, Queue[int]] = {rank: Queue() for rank in range(parallel.num_ranks)}


class Rank:
    """A `ShardRunner` that computes nothing.

    Attributes:
        log: what it did: (what, number of the step).
        most_wanted: so many heads were outstanding at once.
        longest_held: so many messages were read between a step's own and its computation.
    """

    def __init__(self, parallel: ParallelConfig, rank: int, meeting: Meeting) -> None:
        self.parallel, self.rank = parallel, rank
        self.stage = parallel.place(rank).stage
        self.shard = SimpleNamespace(is_last=self.stage == parallel.pp - 1)
        self.log: list[tuple[str, int]] = []
        self.most_wanted = 0
        self.longest_held = 0
        self.num_read = 0
        self._read_at: dict[int, int] = {}
        self._next = parallel.next_rank(rank)
        self._meeting = meeting
        self._wanted: deque[int] = deque()

    def expect(self, model_input: Any) -> None:
        self._read_at[model_input.number] = self.num_read

    def copy_blocks(self, copies: Any) -> None:
        """None."""

    def compute(self, model_input: Any) -> None:
        if self.stage > 0:
            assert self._meeting.links[self.rank].get(timeout=TIMEOUT_S) == model_input.number
        self._meeting.stages[self.stage].wait()
        self.log.append(("step", model_input.number))
        if self._next is not None:
            self._meeting.links[self._next].put(model_input.number)
        if model_input.wants_logits:
            self._wanted.append(model_input.number)
        self.most_wanted = max(self.most_wanted, len(self._wanted))
        self.longest_held = max(self.longest_held, self.num_read - self._read_at.get(model_input.number, self.num_read))

    def logits(self) -> Iterator[None]:
        if self._wanted:
            number = self._wanted.popleft()
            self._meeting.all.wait()
            self.log.append(("head", number))
            yield None


def follow(rank: Rank, messages: "Queue[StepMessage]") -> None:
    def read() -> StepMessage:
        rank.num_read += 1
        return messages.get(timeout=TIMEOUT_S)

    group = SimpleNamespace(control=object(), timeout_s=TIMEOUT_S, parallel=rank.parallel, rank=rank.rank)
    listener: Any = SimpleNamespace(group=group, next=read)
    runner: Any = rank
    run_rank(listener, {0: runner})


def lead(rank: Rank, lines: "list[Queue[StepMessage]]", steps: list[tuple[bool, bool]], *, num_in_flight: int) -> None:
    """As `ModelRunner` does. `steps`: (whether logits are wanted, whether one is finished before the next begins)."""

    def announce(message: StepMessage) -> None:
        for line in lines:
            line.put(message)

    def finish() -> None:
        model_input = in_flight.popleft()
        if model_input.wants_logits:
            announce(StepMessage(StepKind.HEAD))
        rank.compute(model_input)
        list(rank.logits())

    in_flight: deque[Any] = deque()
    for number, (wants_logits, finishes_early) in enumerate(steps):
        model_input: Any = SimpleNamespace(number=number, wants_logits=wants_logits)
        announce(StepMessage(StepKind.STEP, model_input=model_input))
        in_flight.append(model_input)
        if finishes_early or len(in_flight) == num_in_flight:
            finish()
    while in_flight:
        finish()
    announce(StepMessage(StepKind.STOP))


@settings(max_examples=40, deadline=None)
@given(
    pp=st.integers(2, 5),
    tp=st.integers(1, 2),
    steps=st.lists(st.tuples(st.sampled_from([True, True, False]), st.sampled_from([False, False, True])), max_size=16),
)
def test_every_step_and_every_head_is_done_in_order_whichever_want_logits(
    pp: int, tp: int, steps: list[tuple[bool, bool]]
) -> None:
    parallel = ParallelConfig(pp=pp, tp=tp)
    meeting = Meeting(parallel)
    leader, *others = [Rank(parallel, rank, meeting) for rank in range(parallel.num_ranks)]
    lines: list[Queue[StepMessage]] = [Queue() for _ in others]
    with ThreadPoolExecutor(parallel.num_ranks) as threads:
        runs = [threads.submit(follow, rank, line) for rank, line in zip(others, lines, strict=True)]
        runs.append(threads.submit(lead, leader, lines, steps, num_in_flight=pp))
    for run in runs:
        run.result()
    wanted = [number for number, (wants_logits, _) in enumerate(steps) if wants_logits]
    for rank in (leader, *others):
        assert [number for what, number in rank.log if what == "step"] == list(range(len(steps)))
        assert [number for what, number in rank.log if what == "head"] == wanted
        assert rank.most_wanted <= pp - rank.stage
        assert rank.longest_held <= 2 * pp - 2  # frames of a `Listener`, but for the message's and the next one's
        assert rank.log == next(mate.log for mate in (leader, *others) if mate.stage == rank.stage)


def test_a_stage_gives_the_logits_that_later_ones_wait_for_before_it_goes_on() -> None:
    """Three stages, three batches under way: the middle one has computed two when the first is to be sampled."""
    parallel = ParallelConfig(pp=3)
    meeting = Meeting(parallel)
    ranks = [Rank(parallel, rank, meeting) for rank in range(3)]
    lines: list[Queue[StepMessage]] = [Queue() for _ in range(2)]
    with ThreadPoolExecutor(3) as threads:
        runs = [threads.submit(follow, rank, line) for rank, line in zip(ranks[1:], lines, strict=True)]
        runs.append(threads.submit(lead, ranks[0], lines, [(True, False)] * 4, num_in_flight=3))
    for run in runs:
        run.result()
    last, middle, first = (" ".join(f"{what[0]}{number}" for what, number in rank.log) for rank in ranks)
    assert first == "s0 s1 s2 h0 s3 h1 h2 h3"
    assert middle == "s0 s1 h0 s2 h1 s3 h2 h3"
    assert last == "s0 h0 s1 h1 s2 h2 s3 h3"
