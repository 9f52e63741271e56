"""Orders to time programs, and the timings."""

from dataclasses import dataclass

from headway.core.errors import InvalidArgumentError
from headway.core.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingOrder:
    """The order for a bench: the programs to time, one after the other.

    Attributes:
        device: 'cpu' or 'cuda'.
        memory_bytes: the memory that a program may take.
        share: the share of the time that is spent measuring; the bench rests in between.
    """

    programs: tuple[Program, ...]
    device: str = "cpu"
    num_threads: int = 1
    memory_bytes: int
    share: float = 1.0

    def __post_init__(self) -> None:
        check_share(self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Median seconds of one run.

    Attributes:
        number: of the program in its order.
        relative_error: the median distance of the repeats from their median, as a share of it.
        num_repeats: runs that the median is of.
        least_s: of those runs the quickest; 0 where nobody asked.
        num_contended: runs that were dropped, as something else had the machine.
        fault: why there is no time; empty where there is one.
        deviation: of a placed program, by how much its results differ from torch's, as a share of the largest.
    """

    number: int
    seconds: float = 0.0
    relative_error: float = 0.0
    num_repeats: int = 0
    fault: str = ""
    deviation: float = 0.0
    least_s: float = 0.0
    num_contended: int = 0


def check_share(share: float) -> None:
    """Checks a share of time for measuring; InvalidArgumentError where it is none."""
    if not 0 < share <= 1:
        raise InvalidArgumentError(
            f"share must be above 0 and at most 1, not {share}.", hint="0.5 measures half of the time.", field="share"
        )
