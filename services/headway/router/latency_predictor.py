"""Predicts when a group will have done what was leased to it, for models that answer in one pass. Pure.

Each lease is played through the group's pipeline with the latencies of the plan, as the worker will compute it; so the
shortest predicted queue is that of all the group's models together. What comes back sooner or later than predicted
moves everything behind it.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from headway.core.latency import LatencyModel
from headway.core.line import Rank, batch_size
from headway.core.pipeline import Pipeline


@dataclass(frozen=True, kw_only=True, eq=False)
class LeasedJob:
    """A request as a group's line has it.

    Attributes:
        ready_s: when it could begin if the group had nothing else to do.
        deadline_s: by which the group must have its answer; infinite for none.
        rank: its place in line; empty where nobody overtakes anybody.
        is_considerate: whether it stays away where somebody who waits would be late for it.
        latencies: of the model's steps, in each stage.
        max_num_jobs, max_num_tokens: of the model's batches.
    """

    model: str
    num_tokens: int
    ready_s: float
    deadline_s: float
    latencies: tuple[LatencyModel, ...]
    max_num_jobs: int
    max_num_tokens: int
    rank: Rank = ()
    is_considerate: bool = False

    @cached_property
    def stage_s(self) -> list[float]:
        """The seconds that the job takes in each pipeline stage by itself."""
        return stage_s_of([self])

    @property
    def has_known_way(self) -> bool:
        """Whether nobody is batched with it and nobody overtakes it."""
        return self.max_num_jobs == 1 and not self.rank


@dataclass(frozen=True, slots=True)
class Forecast:
    """The prediction for one job, in the clock's seconds.

    Attributes:
        answer_s: when a request is answered if nothing ahead of it is batched.
        soonest_s: when it is answered if it goes ahead of all that waits; equal to `answer_s` for a job never batched.
        is_harmful: whether it would make somebody who waits late.
    """

    answer_s: float
    soonest_s: float
    is_harmful: bool = False


@dataclass(slots=True)
class LatencyPredictor:
    """Predicts the queue of one group. The times of calls must not fall.

    Jobs that are never batched, and that nobody overtakes, have a known way from the moment they come. The others wait
    in line until the first stage is free; then the next begins, with as many of its model as keep all their deadlines.

    Attributes:
        left_s: when the latest lease ended.
    """

    left_s: float = -math.inf
    _pipeline: Pipeline = field(default_factory=lambda: Pipeline(num_stages=1))
    _line: dict[str, LeasedJob] = field(default_factory=dict)
    _queued_s: float = 0.0
    _due_s: dict[str, float] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self._line and not self._due_s

    def predict(self, job: LeasedJob, *, now_s: float) -> Forecast:
        """Predicts the answer of a job that came now."""
        self._advance(now_s)
        if len(job.latencies) != self._pipeline.num_stages:
            return LatencyPredictor(_pipeline=Pipeline(num_stages=len(job.latencies))).predict(job, now_s=now_s)
        soonest_s = self._pipeline.predict(job.ready_s, job.stage_s)
        if job.has_known_way and not self._line:
            return Forecast(soonest_s, soonest_s)
        if job.is_considerate and all(each.max_num_jobs == 1 for each in (job, *self._line.values())):
            return self._predict_in_line(job)
        ahead_s = self._queued_s
        if job.rank:
            ahead_s = sum(max(other.stage_s) for other in self._line.values() if other.rank <= job.rank)
        begin_s = max(job.ready_s, self._pipeline.free_s) + ahead_s
        answer_s = begin_s + sum(job.stage_s)
        return Forecast(answer_s, answer_s if job.max_num_jobs == 1 else soonest_s)

    def _predict_in_line(self, job: LeasedJob) -> Forecast:
        """Predicts a job and those behind it, where nothing is batched."""
        line = list(self._line.values())
        at = bisect_right(line, job.rank, key=lambda other: other.rank)
        without = self._pipeline.copy()
        for other in line[:at]:
            _serve(other, without)
        beside = without.copy()
        answer_s = beside.enter(job.ready_s, job.stage_s)
        is_harmful = False
        for other in line[at:]:
            if is_harmful:
                break
            is_harmful = _serve(other, without) and not _serve(other, beside)
        return Forecast(answer_s, answer_s, is_harmful)

    def enter(self, lease_id: str, job: LeasedJob, *, now_s: float) -> None:
        """A job was leased to the group."""
        self._advance(now_s)
        if len(job.latencies) != self._pipeline.num_stages:
            self._pipeline = Pipeline(num_stages=len(job.latencies))
        if job.has_known_way and not self._line:
            self._due_s[lease_id] = self._pipeline.enter(job.ready_s, job.stage_s)
        else:
            self._line[lease_id] = job
            self._queued_s += max(job.stage_s)
            if job.rank:
                self._line = dict(sorted(self._line.items(), key=lambda item: item[1].rank))

    def leave(self, lease_id: str, *, now_s: float, is_complete: bool) -> None:
        """A lease ended; no change if it is not here."""
        self._advance(now_s)
        if lease_id in self._line:
            self._take(lease_id)
        elif (due_s := self._due_s.pop(lease_id, None)) is None:
            return
        elif is_complete:
            self._shift(now_s - due_s)
        self.left_s = now_s
        if self.is_empty:
            self._pipeline = Pipeline(num_stages=self._pipeline.num_stages)

    def _advance(self, now_s: float) -> None:
        """Begins what begins by now. An answer that is overdue holds up all behind it."""
        if self._due_s and (late_s := now_s - next(iter(self._due_s.values()))) > 0:
            self._shift(late_s)
        while self._line:
            head_id, head = next(iter(self._line.items()))
            start_s = max(head.ready_s, self._pipeline.free_s)
            if start_s > now_s:
                return
            batch = self._next_batch(head, start_s)
            if not batch:
                self._take(head_id)  # it misses its objective, and the worker will not compute it
                continue
            jobs = [self._take(lease_id) for lease_id in batch]
            due_s = self._pipeline.enter(start_s, stage_s_of(jobs))
            self._due_s.update(dict.fromkeys(batch, due_s))

    def _next_batch(self, head: LeasedJob, start_s: float) -> list[str]:
        """The leases of the batch that begins with `head`."""
        alike: dict[str, LeasedJob] = {}
        num_tokens = 0
        for lease_id, job in self._line.items():
            if job.model != head.model:
                continue
            num_tokens += job.num_tokens
            if alike and (len(alike) == head.max_num_jobs or num_tokens > head.max_num_tokens):
                break
            alike[lease_id] = job
        jobs = list(alike.values())
        size = batch_size(
            [job.deadline_s for job in jobs], lambda size: self._pipeline.predict(start_s, stage_s_of(jobs[:size]))
        )
        return list(alike)[:size]

    def _take(self, lease_id: str) -> LeasedJob:
        """Out of the line."""
        job = self._line.pop(lease_id)
        self._queued_s = self._queued_s - max(job.stage_s) if self._line else 0.0
        return job

    def _shift(self, by_s: float) -> None:
        if by_s:
            self._pipeline.shift(by_s)
            self._due_s = {lease_id: due_s + by_s for lease_id, due_s in self._due_s.items()}


def _serve(job: LeasedJob, pipeline: Pipeline) -> bool:
    """Lets a job in unless it would be late: then the worker will not compute it."""
    is_in_time = pipeline.predict(job.ready_s, job.stage_s) <= job.deadline_s
    if is_in_time:
        pipeline.enter(job.ready_s, job.stage_s)
    return is_in_time


def stage_s_of(jobs: Sequence[LeasedJob]) -> list[float]:
    """Returns the seconds that a batch takes in each pipeline stage."""
    lengths = [job.num_tokens for job in jobs]
    return [latency.one_pass_s(lengths) for latency in jobs[0].latencies]
