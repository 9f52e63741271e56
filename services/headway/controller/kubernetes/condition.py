"""Conditions of a resource's status. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MESSAGE_CHARS = 1024
"""That a condition has at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something that is so or not, with a reason in one word."""

    type: str
    is_so: bool
    reason: str
    message: str = ""


def conditions_of(
    conditions: Iterable[Condition], *, generation: int, previous: Mapping[str, Any], now: str
) -> list[dict[str, Any]]:
    """The conditions as a status has them.

    Args:
        generation: of the resource that they are about.
        previous: the status before: the time of a condition that is as it was stays.
        now: in UTC, as text.
    """
    before = {condition["type"]: condition for condition in previous.get("conditions", [])}
    return [
        {
            "type": each.type,
            "status": "True" if each.is_so else "False",
            "reason": each.reason,
            "message": each.message[:MESSAGE_CHARS],
            "observedGeneration": generation,
            "lastTransitionTime": _since(before.get(each.type), is_so=each.is_so, now=now),
        }
        for each in conditions
    ]


def _since(before: Mapping[str, Any] | None, *, is_so: bool, now: str) -> str:
    is_as_before = before is not None and before["status"] == ("True" if is_so else "False")
    return str(before["lastTransitionTime"]) if before is not None and is_as_before else now
