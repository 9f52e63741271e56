"""Reads times as people write them: 5ms, 90s, 30m, 24h, 7d."""

import math
import re

import typer

_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_duration(text: str) -> float:
    """Seconds; without a unit seconds are meant."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|[smhd]?)", text.strip())
    if found is None or not 0 < float(found[1]) < math.inf:
        raise typer.BadParameter(f"{text} is no duration. Write it as 5ms, 90s, 30m, 24h or 7d.")
    return float(found[1]) * _SECONDS[found[2] or "s"]
