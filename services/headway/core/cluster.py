"""Machines and the workers on them."""

import hashlib
import json
from dataclasses import dataclass, field
from functools import lru_cache

from headway.core.codec import ADDED
from headway.core.engine_kind import EngineKind
from headway.core.engine_server import ServerFacts


@lru_cache(maxsize=256)
def _hash(
    device: str,
    name: str,
    num_threads: int,
    software: tuple[tuple[str, str], ...],
    is_emulated: bool,  # noqa: FBT001
    num_devices: int,
) -> str:
    """Fleets have few kinds of hardware, and plans ask for each worker's again and again."""
    facts: list[object] = [device, name, num_threads, software]
    if is_emulated:  # else as ever, so that what was measured stays known
        facts.append("emulated")
    if num_devices > 1:
        facts.append(num_devices)
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The hardware of one worker.

    Attributes:
        device: 'cpu' or 'cuda'.
        name: the vendor's name of the device.
        num_threads: compute threads of the worker.
        memory_bytes: what the worker may use for weights and KV blocks.
        num_devices: of the worker, over which its engine splits each layer. Name, threads and memory are those of one.
        software: library and driver versions that timings depend on.
        device_id: the GPU's id, as `CUDA_VISIBLE_DEVICES` names it; empty for none.
        is_emulated: whether the device is emulated: the worker takes its time and computes nothing. `name` is then
            that of a device in the catalogue.
        server: that the worker stands in for; None where it computes itself. The rest describes the worker's machine
            then, of which it takes nothing.
    """

    device: str
    name: str
    num_threads: int
    memory_bytes: int
    software: dict[str, str] = field(default_factory=dict)
    is_emulated: bool = False
    device_id: str = ""
    server: ServerFacts | None = None
    num_devices: int = field(default=1, metadata=ADDED)

    @property
    def engine(self) -> EngineKind:
        """What its workers compute with: an engine other than ours is among the software."""
        others = (kind for kind in EngineKind if kind is not EngineKind.HEADWAY)
        return next((kind for kind in others if kind in self.software), EngineKind.HEADWAY)

    @property
    def engine_label(self) -> str:
        """The engine with its version, where it has one of its own."""
        return " ".join((self.engine, *self.software.get(self.engine, "").split()))

    @property
    def label(self) -> str:
        """The hardware's name, for messages and tables."""
        name = self.name if self.num_devices == 1 else f"{self.num_devices} x {self.name}"
        return f"{name}, emulated" if self.is_emulated else name

    @property
    def content_hash(self) -> str:
        """Equal for workers whose timings are interchangeable; memory size and which GPU it is do not count."""
        software = tuple(sorted(self.software.items()))
        return _hash(self.device, self.name, self.num_threads, software, self.is_emulated, self.num_devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The link between the workers of a group.

    Attributes:
        latency_s: the seconds of one collective of two workers, however little it carries.
        bytes_per_s: the bytes per second that leave one worker.
    """

    latency_s: float
    bytes_per_s: float

    def collective_s(self, num_bytes: float, *, num_ranks: int) -> float:
        """Seconds of one collective in which `num_bytes` leave each rank; N ranks meet in log2(N) rounds."""
        if num_ranks == 1:
            return 0.0
        return self.latency_s * (num_ranks - 1).bit_length() + num_bytes / self.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWorker:
    """A worker that a plan may use.

    Attributes:
        machine: the host of its address; workers that have one in common are near each other.
        pool: that it is of; empty for none.
    """

    worker_id: str
    hardware: Hardware
    machine: str = ""
    pool: str = ""
