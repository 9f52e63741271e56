"""The frontier of a figure: how far it can go while enough requests still meet their objectives."""

from dataclasses import dataclass
from enum import StrEnum


class Question(StrEnum):
    """The question of a frontier search: the extreme of one figure at which enough requests still meet their
    objectives.
    """

    DEVICES = "devices"
    RATE = "rate"
    CV = "cv"
    SLO = "slo"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """Attributes:
    value: devices, requests/s, CV or SLO scale.
    attainment: of the best placement that was found, on requests that were held out.
    replication: the same of selective replication alone.
    groups: of the best placement.
    """

    value: float
    attainment: float
    replication: float
    groups: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """Attributes:
    target: attainment that is asked for.
    points: in the order of their values.
    best: the extreme value that attains the target; None where none of the points does.
    replication_best: the same of selective replication.
    is_complete: whether the search came to its end.
    """

    question: Question
    target: float
    points: tuple[FrontierPoint, ...]
    best: float | None = None
    replication_best: float | None = None
    is_complete: bool = True
