"""List scheduling: at each moment every free device starts the best task that is ready, by a simple rule."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.schedule import Run, Schedule, TaskPlacement
from headway.planner.schedule.timing import needs_of

_ROUNDING = 1e-9
"""What adding and subtracting may add to what a device holds, as a share of its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Attributes:
    ranks: of each task; among ready tasks the smallest goes first, then the smallest micro-batch.
    limits: for each task pairs (closer, most): no more than `most` micro-batches have begun the task and not ended the
        closer.
    """

    ranks: tuple[int, ...]
    limits: tuple[tuple[tuple[int, int], ...], ...]


def list_schedule(placement: TaskPlacement, num_micro_batches: int, rule: Rule, *, method: str) -> Schedule | None:
    """Schedules by a rule; None where the memory lets nothing start any more."""
    state = _State(placement, num_micro_batches, rule)
    while state.left:
        state.start_all()
        if not state.events:
            return None
        state.advance()
    return Schedule(
        placement=placement,
        num_micro_batches=num_micro_batches,
        runs=tuple(sorted(state.runs)),
        method=method,
    )


class _State:
    """What has been started and ended until now."""

    def __init__(self, placement: TaskPlacement, num_micro_batches: int, rule: Rule) -> None:
        self.placement, self.rule = placement, rule
        self.left = num_micro_batches * len(placement.tasks)
        self.runs: list[Run] = []
        self.events: list[float] = []
        self._now = 0.0
        self._count = num_micro_batches
        self._needs = needs_of(placement)
        self._free = [0.0] * placement.num_devices
        self._held = [0.0] * placement.num_devices
        self._next = [0] * len(placement.tasks)  # the micro-batch that each task runs next
        self._ends: dict[tuple[int, int], float] = {}
        self._order: Sequence[int] = sorted(range(len(placement.tasks)), key=lambda i: rule.ranks[i])

    def start_all(self) -> None:
        """Starts what can start now, the best first."""
        has_started = True
        while has_started:
            has_started = False
            for task in self._order:
                if self._next[task] < self._count and self._can_start(task):
                    self._start(task)
                    has_started = True
                    break

    def advance(self) -> None:
        """To the next moment at which something ends or arrives."""
        now = self._now
        while self.events and self._now <= now:
            self._now = heapq.heappop(self.events)

    def _can_start(self, task: int) -> bool:
        micro_batch = self._next[task]
        for closer, most in self.rule.limits[task]:
            if micro_batch >= most and self._ends.get((closer, micro_batch - most), float("inf")) > self._now:
                return False
        for before, lag in self._needs[task]:
            if self._ends.get((before, micro_batch), float("inf")) + lag > self._now:
                return False
        each, capacities = self.placement.tasks[task], self.placement.capacities
        return all(
            self._free[device] <= self._now
            and (capacities is None or self._held[device] + each.memory <= capacities[device] * (1 + _ROUNDING))
            for device in each.devices
        )

    def _start(self, task: int) -> None:
        micro_batch, each = self._next[task], self.placement.tasks[task]
        end = self._now + each.time
        self.runs.append(Run(start=self._now, task=task, micro_batch=micro_batch))
        self._ends[task, micro_batch] = end
        self._next[task] += 1
        self.left -= 1
        for device in each.devices:
            self._free[device] = end
            self._held[device] += each.memory
        heapq.heappush(self.events, end)
        for dependency in self.placement.dependencies:
            if dependency.before == task and dependency.lag:
                heapq.heappush(self.events, end + dependency.lag)
