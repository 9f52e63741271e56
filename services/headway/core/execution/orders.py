"""The order in which ranks run the parts of their stages. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.errors import InvalidArgumentError
from headway.core.execution.execution import ActionKind, StageSpec
from headway.core.plan.training import longest_ways
from headway.core.schedule import Schedule, TaskKind
from headway.core.stage_chain import stage_chain

METHODS = ("1f1b", "gpipe")
"""Orders that follow from the stages alone."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A stage's next work on one of its micro-batches."""

    stage: int
    kind: ActionKind
    micro_batch: int


Order = tuple[Turn, ...]


def stage_orders(
    method: str, stages: Sequence[StageSpec], successors: Sequence[Sequence[int]], *, batch: int, splits: bool = False
) -> list[Order]:
    """What each stage runs by itself, in order; stages form a graph and may have micro-batches of their own sizes.

    'gpipe' runs all forward passes first. '1f1b' (GraphPipe section 6) starts with as many as there are stages from
    this one on, counted in examples where sizes differ; then each backward pass frees one forward pass.

    Args:
        splits: whether gradients of weights are apart; they come right after those of inputs.
    """
    ahead = longest_ways(successors, [float(stage.micro_batch) for stage in stages])
    orders = []
    for number, stage in enumerate(stages):
        count = batch // stage.micro_batch
        warm_up = count if method == "gpipe" else min(count, max(1, -(-int(ahead[number]) // stage.micro_batch)))
        kinds = (ActionKind.INPUT, ActionKind.WEIGHT) if splits else (ActionKind.BACKWARD,)
        order = [Turn(number, ActionKind.FORWARD, m) for m in range(warm_up)]
        for m in range(count):
            order += [Turn(number, kind, m) for kind in kinds]
            order += [Turn(number, ActionKind.FORWARD, warm_up + m)] if warm_up + m < count else []
        orders.append(tuple(order))
    return orders


def scheduled_orders(schedule: Schedule) -> list[Order]:
    """What each device of a schedule runs, in order; InvalidArgumentError where it is no chain of stages."""
    turns: dict[int, tuple[int, ActionKind]] = {}
    kinds = {kind: ActionKind(kind.value) for kind in TaskKind}
    for number, stage in enumerate(stage_chain(schedule.placement)):
        for task in (stage.forward, stage.backward, stage.input, stage.weight):
            if task is not None:
                turns[task] = number, kinds[schedule.placement.tasks[task].kind]
    if not schedule.placement.is_training:
        raise InvalidArgumentError("A schedule without backward tasks trains nothing.", field="schedule")
    return [tuple(Turn(*turns[run.task], run.micro_batch) for run in runs) for runs in schedule.runs_by_device]
