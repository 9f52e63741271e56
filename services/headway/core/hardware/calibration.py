"""The requests to a calibrating process, and its answers."""

from dataclasses import dataclass

from headway.core.errors import InvalidArgumentError
from headway.core.hardware.cell import Cell, CellTiming
from headway.core.hardware.profile import HardwareProfile, Machine
from headway.core.timing import check_share

DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """The place of a process among those that time collectives with each other.

    Attributes:
        rendezvous: where they meet; empty at rank 0, which opens one and tells where.
    """

    rank: int
    num_ranks: int
    rendezvous: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.num_ranks:
            raise InvalidArgumentError(f"There is no rank {self.rank} among {self.num_ranks}.", field="place")
        if bool(self.rank) != bool(self.rendezvous):
            raise InvalidArgumentError("Rank 0 opens the rendezvous, the others are told it.", field="place")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRequest:
    """Attributes:
    device: 'cpu' or 'cuda'.
    num_threads: that compute, on a CPU.
    cells: to time, in this order; none asks only for the machine.
    share: of the time that is spent measuring; the process rests in between.
    place: of this process, where the cells are collectives with others; else it starts its own.
    host: where other machines reach this one.
    """

    device: str = "cpu"
    num_threads: int = 1
    cells: tuple[Cell, ...] = ()
    share: float = 1.0
    place: RankPlace | None = None
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise InvalidArgumentError(
                f"There is no device '{self.device}'.", hint=f"Choose of {', '.join(DEVICES)}.", field="device"
            )
        if self.num_threads < 1:
            raise InvalidArgumentError(f"{self.num_threads} threads compute nothing.", field="threads")
        check_share(self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationAnswer:
    """The machine, which comes first; or where rank 0 waits for the others; or a timing."""

    machine: Machine | None = None
    rendezvous: str = ""
    timing: CellTiming | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareWanted:
    """The parts of a hardware profile that are wanted.

    Attributes:
        families: the families of cells; empty for all.
        max_ranks: the most ranks of a collective; 1 leaves collectives out.
        fresh: whether the stored timings are forgotten.
    """

    families: tuple[str, ...] = ()
    max_ranks: int = 2
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareRequest:
    """The request to `python -m headway.profiler.hardware`, about its own machine.

    Attributes:
        redis_url, namespace: the Redis, and the stack's namespace in it, where timings are kept.
    """

    redis_url: str
    namespace: str
    wanted: HardwareWanted
    device: str = "cpu"
    num_threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareProgress:
    """The progress of a calibration.

    Attributes:
        cell: the cell that was timed last.
        waits_for: what it waits for just now, in words.
        profile: the hardware's profile; set at the end.
    """

    num_done: int
    num_total: int
    cell: str = ""
    waits_for: str = ""
    profile: HardwareProfile | None = None
