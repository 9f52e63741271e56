"""Types and parsers of command-line options."""

from collections.abc import Iterable
from enum import StrEnum

import typer

from benchmarks.serve.scenario import Load

LOGNORMAL_SIGMA = 0.9


class Dtype(StrEnum):
    """Dtype of weights and KV cache."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class Lengths(StrEnum):
    """How output lengths spread around their mean."""

    FIXED = "fixed"
    LOGNORMAL = "lognormal"

    @property
    def sigma(self) -> float:
        return LOGNORMAL_SIGMA if self is Lengths.LOGNORMAL else 0.0


def parse_loads(text: str) -> list[Load]:
    """`burst,samples` -> [Load.BURST, Load.SAMPLES]."""
    try:
        return [Load(part) for part in text.split(",") if part]
    except ValueError as error:
        known = ", ".join(Load)
        raise typer.BadParameter(f"--scenarios takes some of {known}, with commas between, not {text!r}") from error


def parse_rates(text: str) -> list[float]:
    """`1,2,4` -> [1.0, 2.0, 4.0]; empty text gives no rate."""
    try:
        rates = [float(part) for part in text.split(",") if part]
    except ValueError:
        rates = [0.0]
    if not all(rate > 0 for rate in rates):
        raise typer.BadParameter(f"--rates takes positive numbers with commas between, not {text!r}")
    return rates


def parse_environment(entries: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` entries as a mapping."""
    pairs = [entry.partition("=") for entry in entries]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise typer.BadParameter(f"--peer-env takes KEY=VALUE, not {key!r}")
    return {key: value for key, _, value in pairs}
