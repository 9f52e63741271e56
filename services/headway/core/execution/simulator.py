"""Predicts how long an execution takes: reads the same lists as the ranks that run it. Pure."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from headway.core.execution.execution import RUNS, Action, ActionKind, Execution, Slot
from headway.core.execution.regions import num_elements
from headway.core.execution.slots import SlotFinder
from headway.core.graph import dtype_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionTimes:
    """Attributes:
    parts: seconds of a run of each part, in order.
    update_s: of a rank's update.
    action_s: what every action takes of its rank beside that.
    latency_s, bytes_per_s: of a message between two ranks; one travels at a time between two of them in a direction.
    blocks: whether ranks wait in SEND and RECV until what they carry has arrived.
    """

    parts: tuple[float, ...]
    update_s: float = 0.0
    action_s: float = 0.0
    latency_s: float = 0.0
    bytes_per_s: float = float("inf")
    blocks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One action on its rank, by its place in the rank's list."""

    rank: int
    at: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Attributes:
    iteration_s: until the last rank is done.
    busy_s: of each rank, the time in runs and updates.
    waits_s: of each rank, the time in which it waits for others before its last action.
    spans: of runs and updates.
    """

    iteration_s: float
    busy_s: tuple[float, ...]
    waits_s: tuple[float, ...]
    spans: tuple[Span, ...]


def simulate(execution: Execution, times: ExecutionTimes) -> Simulated:
    """Runs all lists at once on a clock of each rank. The lists are certified: they come to their end."""
    return _Clock(execution, times).run()


@dataclass
class _Clock:
    execution: Execution
    times: ExecutionTimes
    arrivals: dict[tuple[int, int, Slot], float] = field(default_factory=dict)
    incoming: dict[tuple[int, Slot], int] = field(default_factory=dict)
    meetings: dict[tuple[int, int, Slot], dict[ActionKind, float]] = field(default_factory=dict)
    links: dict[tuple[int, int], float] = field(default_factory=dict)
    reduced: dict[tuple[tuple[int, ...], tuple[str, ...]], dict[int, float]] = field(default_factory=dict)
    gathered: dict[Hashable, dict[int, float]] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)

    @cached_property
    def slots(self) -> SlotFinder:
        return SlotFinder.of(self.execution)

    def run(self) -> Simulated:
        ranks = self.execution.ranks
        now, place, waits = [0.0] * len(ranks), [0] * len(ranks), [0.0] * len(ranks)
        is_moving = True
        while is_moving:
            is_moving = False
            for rank, each in enumerate(ranks):
                while place[rank] < len(each.actions):
                    ready = self._ready_s(rank, each.actions[place[rank]], now[rank])
                    if ready is None:
                        break
                    waits[rank] += max(0.0, ready - now[rank])
                    start = max(now[rank], ready)
                    now[rank] = self._do(rank, place[rank], each.actions[place[rank]], start)
                    place[rank] += 1
                    is_moving = True
        busy = [sum(s.end_s - s.start_s for s in self.spans if s.rank == rank) for rank in range(len(ranks))]
        return Simulated(
            iteration_s=max(now), busy_s=tuple(busy), waits_s=tuple(waits), spans=tuple(sorted(self.spans, key=_start))
        )

    def _ready_s(self, rank: int, action: Action, now_s: float) -> float | None:
        """When what an action waits for is there; None where that is not known yet."""
        ready = 0.0
        for slot in self.slots.reads(rank, action):
            if (rank, slot) in self.incoming:
                arrival = self.arrivals.get((self.incoming[rank, slot], rank, slot))
                if arrival is None:
                    return None
                ready = max(ready, arrival)
        if (together := self._together(rank, action)) is not None:
            return self._gathered_s(rank, *together, max(now_s, ready))
        if action.kind is ActionKind.UPDATE:
            for (ranks, _), there in self.reduced.items():
                if rank in ranks:
                    if set(ranks) - set(there):
                        return None
                    ready = max(ready, *there.values())
        if self.times.blocks and action.kind in (ActionKind.SEND, ActionKind.RECV):
            return self._meeting_s(rank, action, now_s)
        return ready

    def _together(self, rank: int, action: Action) -> tuple[Hashable, Sequence[int]] | None:
        """Of what several ranks do at once what it is, and which ranks."""
        if action.kind in RUNS:
            return self.execution.together(rank, action)
        return ((action.slots[0], action.ranks), action.ranks) if action.kind is ActionKind.GATHER else None

    def _gathered_s(self, rank: int, what: Hashable, team: Sequence[int], now_s: float) -> float | None:
        """When all ranks that do something together have come to it; None while one has not."""
        there = self.gathered.setdefault(what, {})
        there.setdefault(rank, now_s)
        return max(there.values()) if len(there) == len(team) else None

    def _meeting_s(self, rank: int, action: Action, now_s: float) -> float | None:
        """When a blocking transfer is over, for both of its sides; None while one is not there."""
        pair = (rank, action.peer) if action.kind is ActionKind.SEND else (action.peer, rank)
        key = (*pair, action.slots[0])
        sides = self.meetings.setdefault(key, {})
        sides.setdefault(action.kind, now_s)
        if len(sides) < len(pair):
            return None
        self.arrivals[key] = max(sides.values()) + self._travel_s(action)
        return self.arrivals[key]

    def _do(self, rank: int, at: int, action: Action, start_s: float) -> float:
        end = start_s + self.times.action_s
        if action.kind in RUNS or action.kind is ActionKind.UPDATE:
            took = self.times.update_s if action.kind is ActionKind.UPDATE else self.times.parts[action.part]
            self.spans.append(Span(rank=rank, at=at, start_s=start_s, end_s=start_s + took))
            return end + took
        if action.kind is ActionKind.RECV:
            self.incoming[rank, action.slots[0]] = action.peer
        elif action.kind is ActionKind.SEND and not self.times.blocks:
            link = rank, action.peer
            begin = max(end, self.links.get(link, 0.0))
            self.links[link] = begin + self._travel_s(action) - self.times.latency_s
            self.arrivals[rank, action.peer, action.slots[0]] = begin + self._travel_s(action)
        elif action.kind is ActionKind.GATHER:
            value = self.slots.values[action.slots[0].value]
            others = num_elements(value.region(action.slots[0])) * (len(action.ranks) - 1) // len(action.ranks)
            return end + self.times.latency_s + others * dtype_bytes(value.dtype) / self.times.bytes_per_s
        elif action.kind is ActionKind.REDUCE:
            self.reduced.setdefault((action.ranks, action.parameters), {})[rank] = end
        return end

    def _travel_s(self, action: Action) -> float:
        return self.times.latency_s + prod(action.shape) * dtype_bytes(action.dtype) / self.times.bytes_per_s


def _start(span: Span) -> tuple[float, int]:
    return span.start_s, span.rank


def kind_times(execution: Execution, seconds: Mapping[tuple[int, ActionKind], float]) -> tuple[float, ...]:
    """Of each part the seconds of its stage and kind; of a part without any, nothing."""
    return tuple(seconds.get((part.stage, part.kind), 0.0) for part in execution.parts)
