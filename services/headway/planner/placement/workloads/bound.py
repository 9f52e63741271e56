"""Bounds the number of a workload's requests before any are made. Pure."""

import math

from headway.core.errors import InvalidArgumentError

MAX_REQUESTS = 10_000_000
"""They, their objectives and their lengths take some 300 MB, twice: those searched and those held out."""

MAX_WINDOWS = 1_000_000
"""In which rate and burstiness of a file are fitted, of all models together."""


def check_num_requests(expected: float, *, what: str, hint: str) -> None:
    """InvalidArgumentError where `expected`, the requests that `what` makes, is above `MAX_REQUESTS`, or no number."""
    if not expected <= MAX_REQUESTS:
        number = f"about {expected:.3g}" if math.isfinite(expected) else "more than can be counted"
        raise InvalidArgumentError(
            f"{what} would make {number} requests; the most are {MAX_REQUESTS:,}.", hint=hint, field="workload"
        )


def check_num_windows(expected: float, *, what: str) -> None:
    """InvalidArgumentError where `what` has more windows than `MAX_WINDOWS`."""
    if not expected <= MAX_WINDOWS:
        raise InvalidArgumentError(
            f"{what} would have about {expected:.3g} windows of its models; the most are {MAX_WINDOWS:,}.",
            hint="Give a longer window=SECONDS, or a shorter --duration.",
            field="workload.window",
        )
