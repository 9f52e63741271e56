"""Searches for pipeline schedules as documents: what is asked for, and what was found."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headway.core.errors import InvalidArgumentError
from headway.core.schedule import Repetend, Run, Schedule, TaskPlacement
from headway.core.schedule_file import check_placement, placement_document, placement_of


class ScheduleAction(StrEnum):
    SEARCH = "search"
    COMPARE = "compare"
    """Search, and price published schedules too."""
    CHECK = "check"
    """Certify and price a schedule of the user's."""
    IMPROVE = "improve"
    """Make a schedule of the user's shorter."""


class Solver(StrEnum):
    CP_SAT = "cp-sat"
    """Micro-batches and starts as variables of one model."""
    Z3 = "z3"
    """The paper's: an assignment of micro-batches after the other."""
    RACE = "race"
    """Both at once: whoever reaches the lower bound first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSchedule:
    """A schedule of the user's to compare with.

    Attributes:
        placement: a document that `placement_of` reads; its name is the file's.
        orders: of devices, pairs of task and micro-batch.
    """

    placement: dict[str, Any]
    num_micro_batches: int
    orders: tuple[tuple[tuple[int, ...], ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSearch:
    """Attributes:
    placement: a document that `placement_of` reads.
    method: 'tessel' searches; or the name of a published schedule, or 'optimal' for the whole schedule at once.
    effort: how much longer than usual solvers may try.
    proves: whether what is found is also proven, as far as `effort` goes: the smallest N_R, no shorter period.
    most_repetend: N_R is not above it; None for no limit.
    solver: that searches the repetend.
    orders: of devices, pairs of task and micro-batch: the user's own schedule.
    places: of the same, where each is in the user's file; empty for its place in `orders`.
    beside: schedules of the user's that published ones are compared with too.
    """

    placement: dict[str, Any]
    num_micro_batches: int
    action: ScheduleAction = ScheduleAction.SEARCH
    method: str = "tessel"
    effort: float = 1.0
    proves: bool = False
    most_repetend: int | None = None
    solver: Solver = Solver.CP_SAT
    orders: tuple[tuple[tuple[int, ...], ...], ...] = ()
    places: tuple[tuple[str, ...], ...] = ()
    beside: tuple[GivenSchedule, ...] = ()

    @property
    def title(self) -> str:
        name, devices = self.placement.get("name", "a placement"), self.placement["devices"]
        return f"{self.action}: {name} on {devices} devices, {self.num_micro_batches} micro-batches"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSchedule:
    """A published schedule beside the one that was found.

    Attributes:
        placement: name of the placement that it is for, with the same work on each device.
        makespan: None where it cannot be.
        peak_memory: on the device that holds most.
        why_not: why it cannot be.
    """

    method: str
    placement: str
    makespan: float | None = None
    period: float | None = None
    peak_memory: float | None = None
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleReport:
    """A schedule, and how good it is.

    Attributes:
        placement: a document that `placement_of` reads.
        starts: of runs, each with a task and a micro-batch in `tasks` and `micro_batches`.
        repetend: None where the schedule has none.
        period: time for one more micro-batch, once the schedule is in its swing.
        lower_bound: of the period.
        bubble_rate: idle share of the busiest device in its swing.
        bubble_of_makespan, bubble_of_span: the same for the whole schedule, until its end and within the longest
            device's own span.
        repetend_micro_batches: N_R; 0 where there is no repetend.
        makespan_bound: no schedule of so many micro-batches is shorter.
        gap: by how much the makespan may be above the shortest, as a share of the bound.
        is_optimal: whether the period is proven to be the shortest within the memory.
        is_makespan_optimal: the same for the makespan.
        is_smallest: whether no repetend with this period spans fewer micro-batches.
        rounding_error: relative, of the lower bound, by making times whole numbers.
        violations: what the certifier found; empty for a valid schedule.
        warmup, cooldown: runs before the first repetition and after the last, as places in `starts`; empty where the
            micro-batches are fewer than those of a repetend.
        programs: of each device, the order of its tasks and of its sends and receives, which do not block.
        critical_path: runs that the makespan rests on, as places in `starts`.
        advice: what would make it shorter, in sentences.
    """

    placement: dict[str, Any]
    num_micro_batches: int
    method: str
    tasks: tuple[int, ...]
    micro_batches: tuple[int, ...]
    starts: tuple[float, ...]
    repetend: Repetend | None = None
    period: float
    lower_bound: float
    bubble_rate: float
    bubble_of_makespan: float
    bubble_of_span: float
    repetend_micro_batches: int = 0
    makespan: float
    makespan_bound: float
    gap: float
    peak_memory: tuple[float, ...]
    search_s: float = 0.0
    search_cpu_s: float = 0.0
    is_optimal: bool = False
    is_makespan_optimal: bool = False
    is_smallest: bool = False
    rounding_error: float = 0.0
    violations: tuple[str, ...] = ()
    warmup: tuple[int, ...] = ()
    cooldown: tuple[int, ...] = ()
    programs: tuple[tuple[str, ...], ...] = ()
    critical_path: tuple[int, ...] = ()
    advice: tuple[str, ...] = ()
    compared: tuple[ComparedSchedule, ...] = field(default=())

    @property
    def schedule(self) -> Schedule:
        """The schedule itself."""
        runs = zip(self.starts, self.tasks, self.micro_batches, strict=True)
        return Schedule(
            placement=read_placement_document(self.placement),
            num_micro_batches=self.num_micro_batches,
            runs=tuple(Run(start=start, task=task, micro_batch=n) for start, task, n in runs),
            method=self.method,
        )


def search_of(placement: TaskPlacement, num_micro_batches: int, **options: Any) -> ScheduleSearch:
    """A search for a placement."""
    return ScheduleSearch(placement=placement_document(placement), num_micro_batches=num_micro_batches, **options)


def read_placement_document(document: dict[str, Any]) -> TaskPlacement:
    """InvalidArgumentError where it is no placement that could be scheduled."""
    name = str(document.get("name", "the placement"))
    placement = placement_of(document, name=name, file=name)
    check_placement(placement, file=name)
    return placement


def check_method(method: str) -> None:
    """InvalidArgumentError where there is no such schedule."""
    if method not in METHODS:
        raise InvalidArgumentError(
            f"There is no schedule '{method}'.", hint=f"Known are {', '.join(METHODS)}.", field="schedule"
        )


PUBLISHED = (
    "gpipe",
    "1f1b",
    "1f1b+",
    "interleaved-1f1b",
    "chimera-direct",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "dualpipe-v",
    "v-half",
    "v-min",
)
METHODS = ("tessel", "optimal", *PUBLISHED)
