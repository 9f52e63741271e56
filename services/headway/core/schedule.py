"""Pipeline schedules: the tasks of one micro-batch on their devices, and when each runs for every micro-batch."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property


class TaskKind(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"
    """Gradients of the input and of the weights."""
    INPUT = "input"
    """The gradient of the input only."""
    WEIGHT = "weight"
    """The gradient of the weights only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A part of one micro-batch's work: a block of the paper's section III-A.

    Attributes:
        devices: that run it together; one task at a time runs on a device.
        time: t_B, in the placement's unit; above 0.
        memory: m_B, what each of its devices holds more from its start on; below 0 where it frees.
    """

    name: str
    devices: tuple[int, ...]
    time: float
    memory: float = 0.0
    kind: TaskKind = TaskKind.FORWARD


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """Attributes:
    before, after: indices of tasks; `after` starts once `before` of the same micro-batch has ended.
    lag: time for communication between both, during which devices are free.
    """

    before: int
    after: int
    lag: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TaskPlacement:
    """The tasks of one micro-batch, and the devices that each of them is on.

    Attributes:
        memory: that each device has for what tasks hold, one number where it is the same on all; None for as much as
            they want.
    """

    name: str
    num_devices: int
    tasks: tuple[Task, ...]
    dependencies: tuple[Dependency, ...] = ()
    memory: float | tuple[float, ...] | None = None

    @cached_property
    def capacities(self) -> tuple[float, ...] | None:
        """The memory of each device; None where it is not bound."""
        if self.memory is None or isinstance(self.memory, tuple):
            return self.memory
        return (self.memory,) * self.num_devices

    @cached_property
    def tasks_by_device(self) -> tuple[tuple[int, ...], ...]:
        """The indices of each device's tasks, ascending."""
        on = [[i for i, task in enumerate(self.tasks) if device in task.devices] for device in range(self.num_devices)]
        return tuple(map(tuple, on))

    @cached_property
    def loads(self) -> tuple[float, ...]:
        """Each device's time for one micro-batch."""
        return tuple(sum(self.tasks[i].time for i in on) for on in self.tasks_by_device)

    @property
    def lower_bound(self) -> float:
        """GetLowerBound of algorithm 1: no period is shorter than the busiest device's time for one micro-batch."""
        return max(self.loads)

    @cached_property
    def is_training(self) -> bool:
        return any(task.kind is not TaskKind.FORWARD for task in self.tasks)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Run:
    """One task of one micro-batch, from its start on."""

    start: float
    task: int
    micro_batch: int


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """When each task runs for each micro-batch.

    Attributes:
        method: that made it, such as 'tessel' or '1f1b'.
        runs: by start, then task, then micro-batch.
    """

    placement: TaskPlacement
    num_micro_batches: int
    runs: tuple[Run, ...]
    method: str = ""

    def end(self, run: Run) -> float:
        return run.start + self.placement.tasks[run.task].time

    @cached_property
    def makespan(self) -> float:
        """The end of the last task; the first begins at 0 or later."""
        return max((self.end(run) for run in self.runs), default=0.0)

    @cached_property
    def runs_by_device(self) -> tuple[tuple[Run, ...], ...]:
        """What each device runs, in order."""
        on: list[list[Run]] = [[] for _ in range(self.placement.num_devices)]
        for run in sorted(self.runs):
            for device in self.placement.tasks[run.task].devices:
                on[device].append(run)
        return tuple(map(tuple, on))

    def memory_after_starts(self, device: int) -> Iterator[float]:
        """What the device holds once each of its tasks has started, in order: [2] of equation (1)."""
        held = 0.0
        for run in self.runs_by_device[device]:
            held += self.placement.tasks[run.task].memory
            yield held

    @cached_property
    def peak_memory(self) -> tuple[float, ...]:
        """The most that each device holds."""
        return tuple(max(self.memory_after_starts(device), default=0.0) for device in range(self.placement.num_devices))

    @cached_property
    def longest_span(self) -> float:
        """The longest time from a device's first start to its last end."""
        return max((self.end(runs[-1]) - runs[0].start for runs in self.runs_by_device if runs), default=0.0)

    @property
    def bubble_of_makespan(self) -> float:
        """Idle share of the busiest device until the last task has ended: the paper's bubble rate."""
        return 1 - self.placement.lower_bound * self.num_micro_batches / self.makespan

    @property
    def bubble_of_span(self) -> float:
        """The same within the longest device's own span, as papers on zero-bubble schedules count it."""
        return 1 - self.placement.lower_bound * self.num_micro_batches / self.longest_span


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetend:
    """The part of a schedule that repeats: each task once, for micro-batches that grow by one with each repetition.

    Attributes:
        period: t_R of equation (4): a repetition begins this much after the last.
        indices: n_i of equation (3), the micro-batch of each task; 0 is the earliest.
        starts: of each task.
        is_optimal: whether no schedule that repeats has a shorter period within the memory.
        bound: what no such schedule's period is below.
        is_smallest: whether no repetend with this period spans fewer micro-batches.
    """

    period: float
    indices: tuple[int, ...]
    starts: tuple[float, ...]
    is_optimal: bool = False
    bound: float = 0.0
    is_smallest: bool = False

    @property
    def num_micro_batches(self) -> int:
        """N_R."""
        return max(self.indices) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A send and its receive, which do not block: `before`'s result for `after`, of one micro-batch.

    Attributes:
        source, target: devices.
    """

    before: int
    after: int
    micro_batch: int
    source: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStep:
    """What a device does next: it runs a task, or starts to send or receive.

    Attributes:
        run: None for a transfer.
        transfer: None for a task.
    """

    run: Run | None = None
    transfer: Transfer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProgram:
    """The steps of a device, in order."""

    device: int
    steps: tuple[DeviceStep, ...] = field(default=())
