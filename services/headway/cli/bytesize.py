"""Reads sizes as people write them, such as 512MB."""

import math
import re

import typer

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """`2GiB` -> 2147483648; also `512MiB`, `1.5G`, `2GB` (10^9) and plain bytes."""
    match = _SIZE.fullmatch(text.strip())
    factor = _FACTORS.get(match[2].lower()) if match else None
    if match is None or factor is None or float(match[1]) * factor == math.inf:
        raise typer.BadParameter(f"{text!r} is not a size; write it like 2GiB, 512MiB or 1.5G.")
    return int(float(match[1]) * factor)
