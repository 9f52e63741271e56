"""What is measured of the kernels: times in microseconds, and what they are to be compared with."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeVar

T = TypeVar("T")
MemoryPath = Literal["memory", "to_host", "to_device"]


@dataclass(frozen=True, slots=True)
class Bandwidths:
    """Bandwidths in bytes a microsecond, of the same run.

    Attributes:
        memory: read and written by a copy within the device.
        to_host, to_device: of copies from and to pinned memory.
    """

    memory: float
    to_host: float
    to_device: float

    def of(self, path: MemoryPath) -> float:
        return {"memory": self.memory, "to_host": self.to_host, "to_device": self.to_device}[path]


@dataclass(frozen=True, slots=True)
class DecodeTiming:
    """Time of a launch of decode attention with its merge; `num_bytes` of keys and values are read.

    Attributes:
        merge_us: of the merge alone.
    """

    batch: str
    num_bytes: int
    us: float
    merge_us: float


@dataclass(frozen=True, slots=True)
class PeerTiming:
    """Time of somebody else's decode attention over the same keys; None, and the reason, where it was not run."""

    batch: str
    peer: str
    us: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class KernelTiming:
    """Time of one kernel.

    Attributes:
        amount: bytes read and written, or floating-point operations.
        path: which of the `Bandwidths` it is held against, if it does little but move bytes.
    """

    name: str
    us: float
    amount: float
    unit: str
    path: MemoryPath | None = None


@dataclass(frozen=True, slots=True)
class MergeTiming:
    """Time of the merge of what several devices made of their shards of a cache, beside the attention over one
    shard."""

    name: str
    us: float
    attention_us: float


@dataclass(frozen=True, slots=True)
class StepTiming:
    """Time of a decode step of a whole model, from its arrays to its tokens on the host.

    Attributes:
        num_bytes: of weights, keys and values that it must read.
        replayed_us, launched_us: as a captured graph, and kernel by kernel.
        device_us: of the replayed one on the device, with everything launched before it begins.
    """

    batch_size: int
    num_bytes: int
    replayed_us: float
    launched_us: float
    device_us: float


@dataclass(frozen=True, slots=True)
class EngineTiming:
    """Time of a decode step of the engine, from one step's outputs to the next one's.

    Attributes:
        waiting_us, ahead_us: with steps after one another, and with each launched while the one before runs.
    """

    batch_size: int
    waiting_us: float
    ahead_us: float


@dataclass(frozen=True, slots=True)
class Failure:
    section: str
    reason: str


@dataclass(slots=True)
class Measured:
    """A whole run. What could not be measured is among the failures, and what was is here all the same."""

    bandwidths: Bandwidths
    decodes: list[DecodeTiming] = field(default_factory=list)
    kernels: list[KernelTiming] = field(default_factory=list)
    merges: list[MergeTiming] = field(default_factory=list)
    steps: list[StepTiming] = field(default_factory=list)
    engine_steps: list[EngineTiming] = field(default_factory=list)
    peers: list[PeerTiming] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def collect(self, section: str, timings: Iterator[T], into: list[T]) -> None:
        try:
            for timing in timings:
                into.append(timing)  # noqa: PERF402 - those before an error stay
        except Exception as error:  # noqa: BLE001 - root of a section
            self.failures.append(Failure(section, reason_of(error)))


def reason_of(error: Exception) -> str:
    """The error's type and the first line of its message."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}".removesuffix(": ")
