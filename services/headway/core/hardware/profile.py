"""The timings of one machine, and the curves through them."""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property

from headway.core.cluster import Hardware
from headway.core.errors import FailedPreconditionError
from headway.core.hardware.cell import CellTiming
from headway.core.hardware.lattice import Lattice
from headway.core.piecewise import PiecewiseLinear


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine that timings depend on.

    Attributes:
        hardware: the worker's hardware, with the versions of its software.
        machine: the host's name.
        cache_bytes: the largest cache of a core; 0 where it is not known.
        num_cores: the cores that its processes may use; 0 where it is not known.
        num_gpus: the GPUs that its processes may use; 0 where they compute on the CPU.
    """

    hardware: Hardware
    machine: str
    cache_bytes: int = 0
    num_cores: int = 0
    num_gpus: int = 0

    @property
    def profile_id(self) -> str:
        """Changes with the hardware, its threads and any version of the software."""
        return self.hardware.content_hash

    def is_like(self, hardware: Hardware) -> bool:
        """Whether a worker's hardware is such, as far as it says: a machine knows more versions than a worker tells."""
        own = self.hardware
        same = (own.device, own.name, own.num_threads, own.is_emulated) == (
            hardware.device,
            hardware.name,
            hardware.num_threads,
            hardware.is_emulated,
        )
        return same and hardware.software.items() <= own.software.items()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFit:
    """A collective of so many ranks.

    Attributes:
        collective: the family that was timed; `family.COLLECTIVES` has its transport.
        latency_s, bytes_per_s: alpha and the inverse of beta: seconds = latency + bytes / rate.
        relative_error: of these two, the median over the sizes.
        curve: linear between sizes, with an error of its own.
    """

    collective: str
    num_ranks: int
    latency_s: float
    bytes_per_s: float
    relative_error: float
    curve: PiecewiseLinear


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProfile:
    """The fitted collectives of a hardware profile, on which plans rest."""

    machine: Machine
    created_at_s: float
    links: tuple[LinkFit, ...]


@dataclass(frozen=True, kw_only=True)
class HardwareProfile:
    """Attributes:
    timings: of single cells, in the order of their keys.
    links: what was fitted to the collectives.
    """

    machine: Machine
    created_at_s: float
    timings: tuple[CellTiming, ...]
    links: tuple[LinkFit, ...] = field(default=())

    @property
    def profile_id(self) -> str:
        return self.machine.profile_id

    def lattice(self, family: str, dtype: str = "float32") -> Lattice:
        """Typical seconds of its cells; FailedPreconditionError where some are missing."""
        try:
            return self._lattices[family, dtype]
        except KeyError as error:
            raise FailedPreconditionError(
                f"The hardware profile {self.profile_id} is not complete: {family} in {dtype} is missing.",
                hint="`headway profile hardware` measures what is missing.",
                field=family,
            ) from error

    def has(self, family: str, dtype: str) -> bool:
        return (family, dtype) in self._lattices

    @cached_property
    def _lattices(self) -> dict[tuple[str, str], Lattice]:
        """Returns the lattice of each family whose grid is complete."""
        seconds: defaultdict[tuple[str, str], dict[tuple[int, ...], float]] = defaultdict(dict)
        for timing in self.timings:
            seconds[timing.cell.family, timing.cell.dtype][timing.cell.extents] = timing.typical_s
        lattices = {}
        for key, known in seconds.items():
            try:
                lattices[key] = Lattice.through(known)
            except KeyError:
                continue
        return lattices


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareSummary:
    """A stored hardware profile.

    Attributes:
        is_stale: no running worker has this hardware and these versions.
    """

    profile_id: str
    machine: Machine
    num_timings: int
    is_stale: bool
