"""The rules of a serving plane: how it dispatches, admits and batches, and what it adds to the profiled latencies."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from headway.core.errors import InvalidArgumentError
from headway.core.line import QueuePolicy


class Dispatch(StrEnum):
    """The rule for which of a model's groups takes a request; the first of equals."""

    LAST_STAGE = "last_stage"
    """The one whose last stage is free first: what the AlpaServe artifact does."""

    EARLIEST_FINISH = "earliest_finish"
    """The one that would finish the request first: the shortest predicted queue, as our router does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Attributes:
    queue_policy: who is next in a group: the first that came, or with `LEAST_SLACK` who could wait least; then a
        request is refused too where others that wait would become late for it. That goes with admission, the earliest
        finish, and one request at a time.
    admission: refuse at once what would miss its SLO; else it is served late.
    stage_overhead: a stage takes (1 + stage_overhead * number of stages) times its profiled latency.
    request_overhead_s: added to each answer; holds no device. Our router's `answer_overhead_s`.
    single_precision: latencies and SLOs are rounded to float32, as the artifact does.
    max_batch_size: requests of one model that a group may take at once. Above 1, a group takes the oldest request
        when its first stage falls free, and with it as many waiting ones of the same model as keep all their SLOs;
        what can't keep its SLO any more is refused then; on arrival only what couldn't even go ahead of all others.
    """

    dispatch: Dispatch = Dispatch.EARLIEST_FINISH
    admission: bool = True
    stage_overhead: float = 0.0
    request_overhead_s: float = 0.0
    single_precision: bool = False
    max_batch_size: int = 1
    queue_policy: QueuePolicy = QueuePolicy.FCFS

    ARTIFACT: ClassVar["Rules"]
    SERVING: ClassVar["Rules"]

    def __post_init__(self) -> None:
        """InvalidArgumentError for rules that no simulator has."""
        if self.queue_policy is QueuePolicy.PRIORITY:
            raise InvalidArgumentError(
                "Requests of a workload have no priorities.", hint="Take fcfs or least-slack.", field="queue_policy"
            )
        plain = self.admission and self.max_batch_size == 1 and self.dispatch is Dispatch.EARLIEST_FINISH
        if self.queue_policy is QueuePolicy.LEAST_SLACK and not plain:
            raise InvalidArgumentError(
                "Least slack first is simulated with admission, the earliest finish, and one request at a time only.",
                hint="Take fcfs, or the rules 'serving'.",
                field="queue_policy",
            )


Rules.ARTIFACT = Rules(
    dispatch=Dispatch.LAST_STAGE, stage_overhead=0.009, request_overhead_s=0.011, single_precision=True
)
Rules.SERVING = Rules()
