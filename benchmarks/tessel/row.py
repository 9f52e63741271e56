"""One figure of the benchmark beside its target."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headway.core.schedule import TaskPlacement
from headway.planner.certify.schedule import find_repetend_violations, find_schedule_violations
from headway.planner.certify.schedule_programs import find_program_violations
from headway.planner.schedule.communication import device_programs
from headway.planner.schedule.kernels import Limits
from headway.planner.schedule.search import Searched, search_schedule

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Attributes:
    target: in words; '' where there is none.
    cpu_s: processor time of search, completion and certificate, with everything imported.
    is_met: None where there is no target.
    """

    part: str
    case: str
    found: str
    target: str = ""
    cpu_s: float = 0.0
    is_met: bool | None = None


def timed(run: Callable[[], T]) -> tuple[T, float]:
    """The result, and the processor seconds that it took."""
    began_s = time.process_time()
    result = run()
    return result, time.process_time() - began_s


def certified(
    placement: TaskPlacement, num_micro_batches: int, limits: Limits | None = None, *, method: str = "tessel"
) -> Searched:
    """Searches and certifies; a violation is a fault of Headway."""
    found = search_schedule(placement, num_micro_batches, limits or Limits(), method=method)
    violations = find_schedule_violations(found.schedule)
    violations += find_program_violations(found.schedule, device_programs(found.schedule))
    if found.repetend is not None:
        violations += find_repetend_violations(placement, found.repetend)
    assert not violations, f"{placement.name}: {violations[0]}"
    return found
