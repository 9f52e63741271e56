"""The kernels' targets on one H200, and whether measured times reach them. Pure: no GPU is needed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from benchmarks.kernels.timings import DecodeTiming, Measured

MB = 1_000_000

READ_SHARES = ((512 * MB, 0.92), (128 * MB, 0.80), (32 * MB, 0.60))  # of the copy bandwidth, from as many bytes on
MAX_US = {"1 x 1K": 8.0, "1 x 4K": 11.0}
MIN_FP8_SPEEDUP, FP8_BYTES = 1.6, 128 * MB
IMBALANCED, BALANCED, MAX_IMBALANCE = "1 x 64K + 31 x 1K", "32 x 3K", 1.25
MIN_MOVED_SHARE, MOVED_BYTES = 0.85, 64 * MB
MAX_MERGE_SHARE = 0.05
MIN_STEP_SHARE = 0.80

Unit = Literal["share", "us", "ratio"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what was measured.

    Attributes:
        value: None where it could not be measured, and `reason` why.
        is_least: the value must be at least, not at most, the target.
    """

    title: str
    value: float | None
    target: float
    unit: Unit
    is_least: bool
    reason: str | None = None

    @property
    def is_met(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.target if self.is_least else self.value <= self.target

    def __str__(self) -> str:
        wanted = f"target {'at least' if self.is_least else 'at most'} {_written(self.target, self.unit)}"
        if self.value is None:
            return f"{self.title}, {wanted}: not run: {self.reason}"
        return f"{self.title}: {_written(self.value, self.unit)}, {wanted}: {'met' if self.is_met else 'missed'}"


def _written(value: float, unit: Unit) -> str:
    match unit:
        case "share":
            return f"{100 * value:.1f} %"
        case "us":
            return f"{value:.1f} us"
        case "ratio":
            return f"{value:.2f}x"


def verdicts_of(measured: Measured) -> list[Verdict]:
    """Makes a verdict for each target, whatever was measured."""
    reasons = {failure.section: failure.reason for failure in measured.failures}
    return [
        *_reads(measured),
        *_latencies(measured, reasons.get("decode")),
        *_speedups(measured),
        _imbalance(measured, reasons.get("decode")),
        *_moves(measured),
        *_merges(measured),
        *_steps(measured),
        *(_failed(section, reason) for section, reason in reasons.items() if section in _SECTIONS),
    ]


def _reads(measured: Measured) -> Iterator[Verdict]:
    for timing in measured.decodes:
        target = next((share for num_bytes, share in READ_SHARES if timing.num_bytes >= num_bytes), None)
        if target is not None and not _is_fp8(timing):
            share = timing.num_bytes / timing.us / measured.bandwidths.memory
            title = f"decode {timing.batch}, {timing.num_bytes / MB:.0f} MB, of the copy bandwidth"
            yield Verdict(title, share, target, "share", is_least=True)


def _latencies(measured: Measured, reason: str | None) -> Iterator[Verdict]:
    times_us = _times_us(measured)
    for batch, target in MAX_US.items():
        time_us = times_us.get(batch)
        why = None if time_us is not None else reason or "not measured"
        yield Verdict(f"decode {batch}", time_us, target, "us", is_least=False, reason=why)


def _speedups(measured: Measured) -> Iterator[Verdict]:
    times_us = _times_us(measured)
    for timing in measured.decodes:
        fp8_us = times_us.get(f"{timing.batch}, fp8")
        if fp8_us is not None and timing.num_bytes >= FP8_BYTES:
            title = f"decode {timing.batch}, fp8 over bfloat16"
            yield Verdict(title, timing.us / fp8_us, MIN_FP8_SPEEDUP, "ratio", is_least=True)


def _imbalance(measured: Measured, reason: str | None) -> Verdict:
    times_us = _times_us(measured)
    title = f"decode {IMBALANCED} over {BALANCED}"
    if not {IMBALANCED, BALANCED} <= times_us.keys():
        return Verdict(title, None, MAX_IMBALANCE, "ratio", is_least=False, reason=reason or "not measured")
    return Verdict(title, times_us[IMBALANCED] / times_us[BALANCED], MAX_IMBALANCE, "ratio", is_least=False)


def _moves(measured: Measured) -> Iterator[Verdict]:
    for timing in measured.kernels:
        if timing.path is not None and timing.amount >= MOVED_BYTES:
            share = timing.amount / timing.us / measured.bandwidths.of(timing.path)
            title = f"{timing.name}, {timing.amount / MB:.0f} MB, of the {_COPIES[timing.path]} bandwidth"
            yield Verdict(title, share, MIN_MOVED_SHARE, "share", is_least=True)


_COPIES = {"memory": "copy", "to_host": "bus's (out)", "to_device": "bus's (in)"}


def _merges(measured: Measured) -> Iterator[Verdict]:
    for timing in measured.merges:
        title = f"cache-parallel merge, {timing.name}, of the attention's time"
        yield Verdict(title, timing.us / timing.attention_us, MAX_MERGE_SHARE, "share", is_least=False)


def _steps(measured: Measured) -> Iterator[Verdict]:
    for timing in measured.steps:
        for clock, time_us in (("device", timing.device_us), ("wall", timing.replayed_us)):
            title = f"Llama 3 8B, batch {timing.batch_size}, of the roofline by {clock} time"
            share = timing.num_bytes / time_us / measured.bandwidths.memory
            yield Verdict(title, share, MIN_STEP_SHARE, "share", is_least=True)


# What is lacking of a section that failed is not known one by one.
_SECTIONS: dict[str, tuple[float, Unit, bool]] = {
    "decode": (READ_SHARES[-1][1], "share", True),
    "kernels": (MIN_MOVED_SHARE, "share", True),
    "merges": (MAX_MERGE_SHARE, "share", False),
    "model": (MIN_STEP_SHARE, "share", True),
}


def _failed(section: str, reason: str) -> Verdict:
    target, unit, is_least = _SECTIONS[section]
    return Verdict(f"the rest of {section}", None, target, unit, is_least, reason)


def _is_fp8(timing: DecodeTiming) -> bool:
    return timing.batch.endswith(", fp8")


def _times_us(measured: Measured) -> dict[str, float]:
    return {timing.batch: timing.us for timing in measured.decodes}
