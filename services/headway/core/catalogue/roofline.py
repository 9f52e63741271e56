"""Seconds of an operator on hardware that is not at hand: the larger of computing and reading, each at its share of
the data sheet's rate for so much work, after its launch. Pure."""

import math
from dataclasses import dataclass
from typing import Literal

from headway.core.catalogue.device import Device
from headway.core.catalogue.figure import Curve, Figure, Provenance
from headway.core.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorWork:
    """The work of one operator, from which a roofline predicts its time.

    Attributes:
        flops: the number of multiply-adds, times two.
        bytes_moved: the bytes read and written.
        extents: a product's rows, columns and the dimension that is summed over; () for anything else,
            whose arithmetic runs at the vector rate of float32.
    """

    flops: float
    bytes_moved: float
    dtype: str
    extents: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """An estimate; `relative_error` is that of the curves that it rests on."""

    seconds: float
    bound: Literal["compute", "memory", "launch"]
    relative_error: float
    provenance: Provenance


def operator_time(work: OperatorWork, device: Device, *, num_threads: int = 1) -> OperatorTime:
    """InvalidArgumentError where the device has no rate for the dtype, or the work cannot be.

    Args:
        num_threads: of a device whose figures are per thread.
    """
    if not all(math.isfinite(amount) and amount >= 0 for amount in (work.flops, work.bytes_moved, *work.extents)):
        raise InvalidArgumentError(
            f"An operator cannot have {work.flops} FLOPs and move {work.bytes_moved} bytes.",
            hint="Give what it computes and moves, from 0.",
        )
    practice, rate = device.practice, _rate(work, device)
    memory_s = 0.0
    if work.bytes_moved:
        reached = share_at(practice.memory, work.bytes_moved)
        memory_s = work.bytes_moved / (device.bytes_per_s(num_threads=num_threads) * reached)
    compute_s = _compute_s(work, device, num_threads) if work.flops else 0.0
    compute_error = max(practice.compute.relative_error, practice.narrow.relative_error) + rate.relative_error
    parts: dict[Literal["compute", "memory", "launch"], tuple[float, float]] = {
        "launch": (practice.launch.value, practice.launch.relative_error),
        "memory": (memory_s, practice.memory.relative_error + device.bandwidth.relative_error),
        "compute": (compute_s, compute_error),
    }
    bound = max(parts, key=lambda part: parts[part][0])
    return OperatorTime(
        seconds=practice.launch.value + max(compute_s, memory_s),
        bound=bound,
        relative_error=parts[bound][1],
        provenance=Provenance.ESTIMATED,
    )


def share_at(curve: Curve, size: float) -> float:
    """Linear in the logarithms of both; the outermost shares beyond the points."""
    sizes = [point[0] for point in curve.points]
    if size <= sizes[0]:
        return curve.points[0][1]
    if size >= sizes[-1]:
        return curve.points[-1][1]
    above = next(number for number, known in enumerate(sizes) if known >= size)
    (low, low_share), (high, high_share) = curve.points[above - 1], curve.points[above]
    return low_share * math.pow(high_share / low_share, math.log(size / low) / math.log(high / low))


def _compute_s(work: OperatorWork, device: Device, num_threads: int) -> float:
    """A product whose smallest extent does not fill a tile takes as long as a larger one that does."""
    flops_per_s = device.flops(_dtype(work), num_threads=num_threads)
    if not work.extents:
        return work.flops / flops_per_s
    padded_flops = work.flops / share_at(device.practice.narrow, min(work.extents))
    return padded_flops / (flops_per_s * share_at(device.practice.compute, padded_flops))


def _dtype(work: OperatorWork) -> str:
    return work.dtype if work.extents else "float32"


def _rate(work: OperatorWork, device: Device) -> Figure:
    if _dtype(work) not in device.peak:
        raise InvalidArgumentError(
            f"{device.name} has no rate for {_dtype(work)}.", hint=f"It has {', '.join(device.peak)}.", field="dtype"
        )
    return device.peak[_dtype(work)]
