"""What clients have seen of a stack to which things happened, and whether it may have been so.

Every request has one outcome. A whole answer is the right one, and a part of an answer its beginning. Requests fail
only while something is down without which they cannot be answered, and only in the way that is told of that. A plan
that was acknowledged stays applied until a later one is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """COMPLETE: to its end. REFUSED: by an error before the first token, or an error event. BROKEN: the connection
    ended."""

    COMPLETE = "complete"
    REFUSED = "refused"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as its client saw it; times are monotonic seconds.

    Attributes:
        outcome: None for one that has not ended.
        text: as much of the answer as came.
        detail: what the client was told of a failure.
    """

    prompt: str
    began_s: float
    ended_s: float
    outcome: Outcome | None
    text: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that happened, and the time until all was well again.

    Attributes:
        harms: outcomes that requests may have which ran meanwhile.
    """

    name: str
    began_s: float
    ended_s: float
    harms: frozenset[Outcome] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A plan that somebody applied.

    Attributes:
        is_acknowledged: else the call failed, and it may have been applied or not.
    """

    plan_id: str
    is_acknowledged: bool


def lost_applies(applies: Sequence[Applied], plan_ids: Sequence[str]) -> list[str]:
    """What must not have been of plans, in words.

    Args:
        applies: one after the other, by one client.
        plan_ids: the history that the stack tells, the newest first.
    """
    found = [
        f"{each.plan_id} was acknowledged and is lost"
        for each in applies
        if each.is_acknowledged and each.plan_id not in plan_ids
    ]
    known = [each.plan_id for each in applies if each.plan_id in plan_ids]
    told = [plan_id for plan_id in reversed(plan_ids) if plan_id in set(known)]
    if told != known:
        found.append(f"plans were applied as {', '.join(known)}, and are told as {', '.join(told)}")
    return found


def violations(requests: list[Asked], faults: list[Fault], *, answers: dict[str, str]) -> list[str]:
    """What must not have been, in words; none for a history that may have been.

    Args:
        answers: the right answer to each prompt.
    """
    found = []
    for asked in requests:
        answer = answers[asked.prompt]
        if asked.outcome is None:
            found.append(f"'{asked.prompt}' has no outcome")
        elif asked.outcome is Outcome.COMPLETE and asked.text != answer:
            found.append(f"'{asked.prompt}' was answered '{asked.text}' instead of '{answer}'")
        elif not answer.startswith(asked.text):
            found.append(f"'{asked.text}' is no beginning of '{answer}'")
        elif asked.outcome is not Outcome.COMPLETE and not _is_excused(asked, faults):
            names = ", ".join(fault.name for fault in _meanwhile(asked, faults)) or "nothing happened"
            found.append(f"'{asked.prompt}' was {asked.outcome} for no reason (while {names}): {asked.detail}")
    return found


def _is_excused(asked: Asked, faults: list[Fault]) -> bool:
    return any(asked.outcome in fault.harms for fault in _meanwhile(asked, faults))


def _meanwhile(asked: Asked, faults: list[Fault]) -> list[Fault]:
    return [fault for fault in faults if asked.began_s < fault.ended_s and fault.began_s < asked.ended_s]
