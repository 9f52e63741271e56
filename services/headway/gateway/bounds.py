"""Ranges of what clients may ask for."""

from headway.core.errors import InvalidArgumentError


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
