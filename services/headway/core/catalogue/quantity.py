"""Numbers with units, as people write them: '80 GB', '3.35 TB/s', '989 TFLOP/s', '25 Gbit/s', '5 us', '60 %'."""

import math
import re
from enum import Enum
from fractions import Fraction

_DECIMAL = {prefix: Fraction(1000) ** power for power, prefix in enumerate(("", "k", "M", "G", "T", "P"))}
_BINARY = {prefix: Fraction(1024) ** power for power, prefix in enumerate(("Ki", "Mi", "Gi", "Ti"), start=1)}
_BYTES = {f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()}
_BITS = {f"{prefix}bit": factor / 8 for prefix, factor in _DECIMAL.items()}
_MOST = 10**30
_WRITTEN = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf))\s*(\S*)\s*", re.IGNORECASE)


class Kind(Enum):
    """The kind of a quantity; each value is (what it measures, an example, each unit with its factor)."""

    BYTES = ("a number of bytes", "80 GB", _BYTES)
    BANDWIDTH = ("a bandwidth", "900 GB/s", {f"{unit}/s": factor for unit, factor in (_BYTES | _BITS).items()})
    COMPUTE = (
        "a rate of arithmetic",
        "125 TFLOP/s",
        {f"{prefix}FLOP/s": factor for prefix, factor in _DECIMAL.items()},
    )
    TIME = ("a time", "5 us", {unit: Fraction(1, 1000**power) for power, unit in enumerate(("s", "ms", "us", "ns"))})
    SHARE = ("a share", "60 %", {"": Fraction(1), "%": Fraction(1, 100)})

    @property
    def units(self) -> dict[str, Fraction]:
        return self.value[2]


def parse_quantity(text: str, kind: Kind) -> float:
    """Returns a written quantity in the base unit of `kind`. ValueError says what is wrong where it is not a positive
    one.
    """
    what, example, units = kind.value
    match = _WRITTEN.fullmatch(text)
    if match is None or match[2] not in units:
        raise ValueError(f"should be {what} such as '{example}', not '{text}'")
    if not (math.isfinite(float(match[1])) and float(match[1]) > 0):
        raise ValueError(f"should be positive and finite, not '{text}'")
    value = Fraction(match[1]) * units[match[2]]
    if kind is Kind.SHARE and value > 1:
        raise ValueError(f"should be at most 1, not '{text}'")
    if value > _MOST:
        raise ValueError(f"should be less, not '{text}'")
    return float(value)


def format_quantity(value: float, kind: Kind) -> str:
    """Writes a quantity with the largest decimal unit that keeps it at 1 or above: 9.89e14 FLOP/s -> '989 TFLOP/s'."""
    if kind is Kind.SHARE:
        return f"{100 * value:.4g} %"
    factors = {unit: float(factor) for unit, factor in kind.units.items() if "i" not in unit}
    fitting = [unit for unit, factor in factors.items() if value >= factor * (1 - 1e-9)]
    unit = max(fitting, key=factors.__getitem__) if fitting else min(factors, key=factors.__getitem__)
    return f"{value / factors[unit]:.4g} {unit}"
