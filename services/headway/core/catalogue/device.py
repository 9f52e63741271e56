"""Processors, the lines between them, and the machines that they make up."""

from dataclasses import dataclass, field

from headway.core.catalogue.figure import Curve, Figure
from headway.core.cluster import Fabric


@dataclass(frozen=True, slots=True, kw_only=True)
class Practice:
    """The figures that programs reach in practice on a kind of device.

    Attributes:
        usual: the share of peak rates that a whole model reaches, computing as well as reading.
        launch: seconds until an operator runs that was called.
        step, sequence: seconds of scheduling and launching, for each engine step and each sequence in it.
        table_entry: the seconds of a rank's work on one entry of a block table, in every step.
        compute: the share of the peak FLOP/s that an operator reaches.
        narrow: the part of that which is left where the smallest extent of a product is that many.
        memory: the share of the bandwidth that an operator reaches.
    """

    name: str
    usual: Figure
    launch: Figure
    step: Figure
    sequence: Figure
    table_entry: Figure
    compute: Curve
    narrow: Curve
    memory: Curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A kind of processor, with the figures of its data sheet.

    Attributes:
        kind: 'gpu' or 'cpu'.
        names: parts of the names that vendors give it; '' is in every name.
        memory: the bytes of its memory; None where machines differ.
        bandwidth: the bandwidth of the memory, bytes/s.
        bandwidth_limit: where figures are per thread, the most that all threads reach together.
        peak: the FLOP/s of dense products, by dtype.
        reached: what whole models get of them, by dtype, and of 'bandwidth'; where it is not there, `practice.usual`.
        per_thread: whether `peak` and `bandwidth` are those of one thread.
        link: the link that usually joins several in one machine.
    """

    name: str
    kind: str
    names: tuple[str, ...]
    bandwidth: Figure
    peak: dict[str, Figure]
    link: str
    practice: Practice
    reached: dict[str, Figure] = field(default_factory=dict)
    memory: Figure | None = None
    bandwidth_limit: Figure | None = None
    per_thread: bool = False

    def bytes_per_s(self, *, num_threads: int = 1) -> float:
        """Returns the memory bandwidth of the data sheet."""
        return self._limit(self.bandwidth.value * self._num_parts(num_threads))

    def flops(self, dtype: str, *, num_threads: int = 1) -> float:
        """FLOP/s by the data sheet. KeyError where the device does not compute in `dtype`."""
        return self.peak[dtype].value * self._num_parts(num_threads)

    def reached_bytes_per_s(self, *, num_threads: int = 1) -> float:
        """Returns the memory bandwidth that whole models reach."""
        known = self.reached.get("bandwidth")
        each = self.practice.usual.value * self.bandwidth.value if known is None else known.value
        return self._limit(each * self._num_parts(num_threads))

    def reached_flops(self, dtype: str, *, num_threads: int = 1) -> float:
        """FLOP/s over whole models. KeyError where the device does not compute in `dtype`."""
        known = self.reached.get(dtype)
        each = self.practice.usual.value * self.peak[dtype].value if known is None else known.value
        return each * self._num_parts(num_threads)

    def _num_parts(self, num_threads: int) -> int:
        return num_threads if self.per_thread else 1

    def _limit(self, bytes_per_s: float) -> float:
        return bytes_per_s if self.bandwidth_limit is None else min(bytes_per_s, self.bandwidth_limit.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A kind of line between devices or machines.

    Attributes:
        bandwidth: bytes/s that may leave one device, by the data sheet.
        reached: bytes/s that leave it in collectives.
        latency: seconds of one collective of two, however little it carries.
    """

    name: str
    bandwidth: Figure
    reached: Figure
    latency: Figure

    @property
    def fabric(self) -> Fabric:
        """The latency and bandwidth that programs reach over the link."""
        return Fabric(latency_s=self.latency.value, bytes_per_s=self.reached.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A kind of machine: `num_devices` joined by `link`, and `num_ports` of `network` between machines."""

    name: str
    device: str
    num_devices: int
    link: str
    network: str
    num_ports: int
    source: str
