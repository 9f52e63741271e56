"""Ranges of what clients may ask for."""

from headway.core.errors import InvalidArgumentError

MAX_MESSAGES = 4096


def check_num_entries(field: str, num_entries: int, max_entries: int, *, what: str = "entries") -> None:
    """InvalidArgumentError where a list or a mapping has more than one request may have."""
    if num_entries > max_entries:
        raise InvalidArgumentError(
            f"{field} has {num_entries} {what}; it may have {max_entries}.", hint="Send fewer.", field=field
        )


def check_range(
    field: str, value: float | None, low: float | None, high: float | None, *, what: str | None = None
) -> None:
    """Raises InvalidArgumentError where a value is out of range; None is always in it.

    Args:
        what: the value in words, where it is not the field itself.
    """
    if value is None:
        return
    if (low is None or value >= low) and (high is None or value <= high):
        return
    bounds = f"at least {low:g}" if high is None else f"between {low:g} and {high:g}"
    raise InvalidArgumentError(f"{what or field} is {value:g}; it must be {bounds}.", field=field)
