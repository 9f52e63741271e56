"""A schedule of the user's as one to compare with: its stages take what the placement's devices work."""

from dataclasses import replace
from pathlib import Path

from headway.cli.placement.files import read_text
from headway.core.errors import InvalidArgumentError
from headway.core.exports.torch_pipelining import read_torch_csv
from headway.core.schedule import TaskKind, TaskPlacement
from headway.core.schedule_file import placement_document
from headway.core.schedule_search import GivenSchedule

_LETTERS = {"F": TaskKind.FORWARD, "B": TaskKind.BACKWARD, "I": TaskKind.INPUT, "W": TaskKind.WEIGHT}
_ANY = {"F": (1.0,), "B": (2.0,)}


def read_beside(file: Path, placement: TaskPlacement) -> GivenSchedule:
    """Reads a torch CSV; the stages of a device share its work and its activations evenly.

    Raises:
        InvalidArgumentError: names rank and step, or what the file has otherwise than the placement.
    """
    text = read_text(file)
    devices = read_torch_csv(text, file=str(file), times=_ANY).placement
    if devices.num_devices != placement.num_devices:
        raise InvalidArgumentError(
            f"{file} is for {devices.num_devices} ranks, and {placement.name} for {placement.num_devices} devices.",
            hint="Compare schedules for equally many devices.",
            field="beside",
        )
    rank_of = [task.devices[0] for task in devices.tasks if task.kind is TaskKind.FORWARD]
    times = {
        letter: tuple(_work(placement, kind, rank) / rank_of.count(rank) for rank in rank_of)
        for letter, kind in _LETTERS.items()
        if any(task.kind is kind for task in placement.tasks)
    }
    given = read_torch_csv(text, file=str(file), times=times)
    kept = [sum(max(placement.tasks[i].memory, 0.0) for i in on) for on in placement.tasks_by_device]
    chunks = max(rank_of.count(rank) for rank in set(rank_of))
    tasks = tuple(
        replace(task, memory=task.memory * chunks * kept[task.devices[0]] / rank_of.count(task.devices[0]))
        for task in given.placement.tasks
    )
    lag = max((each.lag for each in placement.dependencies), default=0.0)
    there = {i: task.devices for i, task in enumerate(tasks)}
    dependencies = tuple(
        replace(each, lag=0.0 if there[each.before] == there[each.after] else lag)
        for each in given.placement.dependencies
    )
    made = replace(given.placement, name=file.name, tasks=tasks, dependencies=dependencies, memory=placement.memory)
    return GivenSchedule(
        placement=placement_document(made), num_micro_batches=given.num_micro_batches, orders=given.orders
    )


def _work(placement: TaskPlacement, kind: TaskKind, device: int) -> float:
    """A device's time of one kind of tasks, for one micro-batch."""
    tasks = (placement.tasks[i] for i in placement.tasks_by_device[device])
    return sum(task.time for task in tasks if task.kind is kind)
