"""Times of stages on the command line: `F=1,B=2` for all alike, `F=1:2,B=2:4` for each stage."""

import math

from headway.core.errors import InvalidArgumentError

_LETTERS = "FBIW"


def parse_times(text: str) -> dict[str, tuple[float, ...]]:
    """By letter: F forward, B backward, I and W its halves for inputs and weights."""
    found: dict[str, tuple[float, ...]] = {}
    for part in text.split(","):
        letter, _, values = part.strip().partition("=")
        if letter not in _LETTERS or len(letter) != 1 or letter in found:
            raise InvalidArgumentError(
                f"'{part}' is no time of F, B, I or W.", hint="Write --times F=1,I=1,W=1.", field="times"
            )
        found[letter] = tuple(_seconds(value) for value in values.split(":"))
    return found


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value > 0 or not math.isfinite(value):
        raise InvalidArgumentError(f"'{text}' is no time.", hint="Give a number above 0.", field="times")
    return value
