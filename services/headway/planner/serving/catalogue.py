"""What devices and the lines between them reach in practice, by their names."""

from dataclasses import dataclass

from headway.core.cluster import Fabric, Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """What a device reaches in practice, about 60 % of its data sheet.

    Attributes:
        flops: multiply-adds times two per second, in 16-bit floats; half of it in float32.
        bytes_per_s: memory bandwidth.
        step_overhead_s, sequence_overhead_s: scheduling and launching, per step and per sequence in it.
        table_entry_s: a rank's work on one entry of a block table, in every step. `StepInput.of` on one core takes 1.0
            to 1.5 ns (2026-11-21).
        widens_quantized: whether int8 weights are computed with in float32.
    """

    flops: float
    bytes_per_s: float
    step_overhead_s: float
    sequence_overhead_s: float
    table_entry_s: float = 1.5e-9
    widens_quantized: bool = False

    def flops_in(self, *, is_float32: bool) -> float:
        return self.flops * (0.5 if is_float32 else 1.0)


# Longest name first: "H100 NVL" would have to stand before "H100". From data sheets: dense 16-bit products, and memory
# bandwidth; of the RTX A5000 111 TFLOP/s and 768 GB/s, of the H200 989 TFLOP/s and 4.8 TB/s.
_GPUS = (
    ("B200", 1350e12, 4.8e12),
    ("H200", 590e12, 2.9e12),
    ("H100", 590e12, 2.0e12),
    ("A100", 190e12, 1.2e12),
    ("L40S", 220e12, 0.52e12),
    ("L4", 70e12, 0.18e12),
    ("A5000", 67e12, 0.46e12),
    ("A10", 75e12, 0.36e12),
    ("T4", 39e12, 0.19e12),
)
_UNKNOWN_GPU = (75e12, 0.36e12)
_CPU_FLOPS_PER_THREAD = 120e9
_CPU_BYTES_PER_S_PER_THREAD = 10e9
_CPU_BYTES_PER_S = 80e9

LOOPBACK = Fabric(latency_s=150e-6, bytes_per_s=1.5e9)
"""Processes of one machine; `make bench-fabric` measures it."""

NVLINK = Fabric(latency_s=20e-6, bytes_per_s=200e9)
"""NVSwitch: 450 GB/s each way on an H100 or H200, 300 on an A100 (data sheets)."""

PCIE_4 = Fabric(latency_s=30e-6, bytes_per_s=12e9)
"""16 lanes: 31.5 GB/s each way, less than half of it through the host's memory. Also four RTX A5000: bridges join pairs
(56 GB/s each way, data sheet), and a ring over four goes through PCIe."""

PCIE_5 = Fabric(latency_s=30e-6, bytes_per_s=24e9)
"""Twice as much."""

_LINKED_GPUS = ("B200", "H200", "H100", "A100")


def roofline_of(hardware: Hardware) -> Roofline:
    """A GPU by its name, a CPU by its number of threads."""
    if hardware.device == "cpu":
        return Roofline(
            flops=_CPU_FLOPS_PER_THREAD * hardware.num_threads,
            bytes_per_s=min(_CPU_BYTES_PER_S, _CPU_BYTES_PER_S_PER_THREAD * hardware.num_threads),
            step_overhead_s=1e-3,
            sequence_overhead_s=50e-6,
            widens_quantized=True,
        )
    known = ((flops, bandwidth) for name, flops, bandwidth in _GPUS if name in hardware.name)
    flops, bytes_per_s = next(known, _UNKNOWN_GPU)
    return Roofline(flops=flops, bytes_per_s=bytes_per_s, step_overhead_s=2e-3, sequence_overhead_s=10e-6)


def fabric_of(hardware: Hardware) -> Fabric:
    """What usually connects workers of that kind on one machine."""
    if hardware.device == "cpu":
        return LOOPBACK
    return NVLINK if any(name in hardware.name for name in _LINKED_GPUS) else PCIE_4
