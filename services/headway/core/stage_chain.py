"""Placements that are a chain of stages, each on one device: what most schedules, and most trainers, are made for."""

from dataclasses import dataclass

from headway.core.errors import InvalidArgumentError
from headway.core.schedule import TaskKind, TaskPlacement


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainStage:
    """The tasks of one stage, by their index in the placement.

    Attributes:
        backward: of the whole gradient; None where it is split into `input` and `weight`, or there is none.
    """

    device: int
    forward: int
    backward: int | None = None
    input: int | None = None
    weight: int | None = None


def stage_chain(placement: TaskPlacement) -> tuple[ChainStage, ...]:
    """Finds the stages, first to last.

    Raises:
        InvalidArgumentError: names the task that is in no such chain.
    """
    for task in placement.tasks:
        if len(task.devices) > 1:
            raise _unfit(placement, f"task {task.name} is on {len(task.devices)} devices, and a stage is on one")
    forwards = _chain_of(placement, TaskKind.FORWARD)
    is_split = any(task.kind is TaskKind.INPUT for task in placement.tasks)
    gradients = _chain_of(placement, TaskKind.INPUT if is_split else TaskKind.BACKWARD)[::-1]
    if gradients and len(gradients) != len(forwards):
        raise _unfit(placement, f"there are {len(forwards)} forward tasks, and {len(gradients)} that go back")
    weights = _weights(placement)
    stages = []
    for stage, forward in enumerate(forwards):
        gradient = gradients[stage] if gradients else None
        device = placement.tasks[forward].devices[0]
        if gradient is not None and placement.tasks[gradient].devices != (device,):
            name = placement.tasks[gradient].name
            raise _unfit(placement, f"task {name} is not on device {device}, as stage {stage}'s forward task is")
        if is_split and gradient not in weights:
            raise _unfit(placement, f"stage {stage} has no task for the gradient of its weights")
        stages.append(
            ChainStage(
                device=device,
                forward=forward,
                backward=None if is_split else gradient,
                input=gradient if is_split else None,
                weight=weights[gradient] if is_split and gradient is not None else None,
            )
        )
    return tuple(stages)


def _chain_of(placement: TaskPlacement, kind: TaskKind) -> list[int]:
    """The tasks of a kind, each after the one that it needs."""
    of_kind = [i for i, task in enumerate(placement.tasks) if task.kind is kind]
    following: dict[int, list[int]] = {i: [] for i in of_kind}
    has_before = set()
    for each in placement.dependencies:
        if each.before in following and each.after in following:
            following[each.before].append(each.after)
            has_before.add(each.after)
    firsts = [i for i in of_kind if i not in has_before]
    chain = firsts[:1]
    while chain and len(following[chain[-1]]) == 1:
        chain.append(following[chain[-1]][0])
    if len(chain) != len(of_kind):
        left = next(i for i in of_kind if i not in chain or len(following[i]) > 1)
        raise _unfit(placement, f"task {placement.tasks[left].name} is beside others instead of after them")
    return chain


def _weights(placement: TaskPlacement) -> dict[int | None, int]:
    """By the task of an input's gradient, that of the weights' gradient."""
    found: dict[int | None, int] = {}
    for each in placement.dependencies:
        if placement.tasks[each.after].kind is TaskKind.WEIGHT:
            found[each.before] = each.after
    return found


def _unfit(placement: TaskPlacement, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{placement.name} is no chain of stages: {why}.",
        hint="`headway plan schedule --out FILE.json` keeps any schedule in Headway's own form.",
        field="placement",
    )
