"""The measuring of a model as a job that outlives whoever asked for it."""

from dataclasses import dataclass
from enum import StrEnum

from headway.core.cluster import Hardware
from headway.core.errors import InvalidArgumentError
from headway.core.profiling_units import ProfilingUnits
from headway.core.program import Program
from headway.core.timing import check_share


class JobState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringJob:
    """The progress of a measuring job.

    Attributes:
        hardware: the vendor's name of the hardware.
        num_done: the programs whose cost is known, or known to be unknown.
        num_cached: the programs that had been measured before.
        message: what it waits for, or why it failed.
        profile_id: the id of the profile that it makes.
    """

    job_id: str
    model: str
    hardware: str
    state: JobState = JobState.RUNNING
    num_done: int = 0
    num_total: int
    num_cached: int = 0
    message: str = ""
    profile_id: str
    created_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringWork:
    """The work of a measuring job.

    Attributes:
        programs: every program that the profiling units name.
        share: the share of the time of a worker that has a model loaded.
        longest_s: the longest estimated run of a program that is measured; longer ones are left out.
    """

    subject: ProfilingUnits
    programs: tuple[Program, ...]
    hardware: Hardware
    share: float
    longest_s: float

    def __post_init__(self) -> None:
        check_share(self.share)
        if not self.longest_s > 0:
            raise InvalidArgumentError(f"longest_s must be above 0, not {self.longest_s}.", field="longest_s")
        known = {program.content_hash for program in self.programs}
        if missing := self.subject.program_names().keys() - known:
            raise InvalidArgumentError(
                f"The program {min(missing)} of the subject is not among the programs.", field="programs"
            )
