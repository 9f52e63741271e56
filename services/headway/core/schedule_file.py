"""Placements of pipeline tasks in files: one placement, or several under `placements` by name."""

import json
import math
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from headway.core.codec import from_document, to_document
from headway.core.errors import InvalidArgumentError
from headway.core.schedule import Dependency, Task, TaskKind, TaskPlacement

_FIELDS = ("devices", "tasks", "dependencies", "memory", "lower_bound_period", "name")
_HINT = 'Write {"devices": 2, "tasks": [{"name": "F0", "devices": [0], "time": 1}], "dependencies": [[0, 1]]}.'


def read_placement(text: str, *, file: str, name: str | None = None) -> TaskPlacement:
    """Reads a placement.

    Args:
        file: for messages.
        name: of the placement, where the file has several.

    Raises:
        InvalidArgumentError: names the file and the task or field.
    """
    document = _parse(text, file)
    if "placements" in document:
        document, name = _pick(document["placements"], file, name)
    placement = placement_of(document, name=name or str(document.get("name", file)), file=file)
    check_placement(placement, file=file)
    return placement


def placement_of(document: Mapping[str, Any], *, name: str, file: str) -> TaskPlacement:
    """Converts a document, without looking at what it means."""
    for key in document:
        if key not in _FIELDS:
            raise InvalidArgumentError(f"{file}: '{key}' is unknown.", hint=f"Known are {', '.join(_FIELDS)}.")
    for key in ("devices", "tasks"):
        if key not in document:
            raise InvalidArgumentError(f"{file} lacks '{key}'.", hint=_HINT, field=key)
    for key in ("tasks", "dependencies"):
        if not isinstance(document.get(key, []), list | tuple):
            raise InvalidArgumentError(f"{file}: {key} should be a list, not {document[key]!r}.", field=key)
    tasks = tuple(from_document(Task, each, path=f"{file}: tasks[{i}]") for i, each in enumerate(document["tasks"]))
    return TaskPlacement(
        name=name,
        num_devices=from_document(int, document["devices"], path=f"{file}: devices"),
        tasks=tasks,
        dependencies=tuple(
            _dependency(each, f"{file}: dependencies[{i}]") for i, each in enumerate(document.get("dependencies", ()))
        ),
        memory=_memory(document.get("memory"), f"{file}: memory"),
    )


def placement_document(placement: TaskPlacement) -> dict[str, Any]:
    """The document that `placement_of` reads."""
    tasks = [
        {
            "name": task.name,
            "devices": list(task.devices),
            "time": task.time,
            "memory": task.memory,
            "kind": task.kind.value,
        }
        for task in placement.tasks
    ]
    pairs = [[each.before, each.after, *([each.lag] if each.lag else [])] for each in placement.dependencies]
    document = {"name": placement.name, "devices": placement.num_devices, "tasks": tasks, "dependencies": pairs}
    return document if placement.memory is None else document | {"memory": to_document(placement.memory)}


def check_placement(placement: TaskPlacement, *, file: str) -> None:
    """Raises InvalidArgumentError that names the task at fault."""
    if placement.num_devices < 1 or not placement.tasks:
        raise InvalidArgumentError(f"{file} has no devices or no tasks.", hint=_HINT)
    for task in placement.tasks:
        _check_task(task, placement.num_devices, file)
    _check_memory(placement, file)
    num_tasks = len(placement.tasks)
    for each in placement.dependencies:
        if not (0 <= each.before < num_tasks and 0 <= each.after < num_tasks):
            pair = f"[{each.before}, {each.after}]"
            raise InvalidArgumentError(
                f"{file}: the dependency {pair} names no task.", hint=f"Tasks are counted from 0 to {num_tasks - 1}."
            )
        if not math.isfinite(each.lag) or each.lag < 0:
            names = f"{placement.tasks[each.before].name} and {placement.tasks[each.after].name}"
            raise InvalidArgumentError(f"{file}: the lag between {names} is {each.lag}.", hint="Give 0 or more.")
    _check_order(placement, file)


def _parse(text: str, file: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(f"{file}, line {error.lineno}: {error.msg}.", hint=_HINT) from error
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, lists a thousand deep
        raise InvalidArgumentError(f"{file} cannot be read: {error}.", hint=_HINT) from error
    if not isinstance(document, dict):
        raise InvalidArgumentError(f"{file} is no JSON object.", hint=_HINT)
    return document


def _pick(placements: Any, file: str, name: str | None) -> tuple[dict[str, Any], str]:
    placements = placements if isinstance(placements, dict) else {}
    known = [name for name, each in placements.items() if isinstance(each, dict)]
    if name is None and len(known) == 1:
        name = known[0]
    if name is None or name not in known:
        raise InvalidArgumentError(
            f"{file} has several placements." if name is None else f"{file} has no placement '{name}'.",
            hint=f"Name one after a colon: {file}:{known[0] if known else 'V'}. It has {', '.join(known)}.",
            field="placement",
        )
    return placements[name], name


def _memory(document: Any, path: str) -> float | tuple[float, ...] | None:
    """One number for all devices, or a list of one for each."""
    if document is None:
        return None
    if isinstance(document, list | tuple):
        return tuple(from_document(float, each, path=f"{path}[{i}]") for i, each in enumerate(document))
    return from_document(float, document, path=path)


def _dependency(document: Any, path: str) -> Dependency:
    if not isinstance(document, Sequence) or isinstance(document, str) or len(document) not in (2, 3):
        raise InvalidArgumentError(f"{path} should be [before, after] or [before, after, lag], not {document!r}.")
    before, after = (from_document(int, each, path=path) for each in document[:2])
    return Dependency(before=before, after=after, lag=from_document(float, (*document, 0.0)[2], path=path))


def _check_task(task: Task, num_devices: int, file: str) -> None:
    if not math.isfinite(task.time) or task.time <= 0:
        raise InvalidArgumentError(f"{file}: task {task.name} has the time {task.time}.", hint="Give more than 0.")
    if not math.isfinite(task.memory):
        raise InvalidArgumentError(f"{file}: task {task.name} has the memory {task.memory}.", hint="Give a number.")
    if not task.devices or len(set(task.devices)) < len(task.devices):
        raise InvalidArgumentError(f"{file}: task {task.name} has no devices, or one twice.", hint="Name each once.")
    for device in task.devices:
        if not 0 <= device < num_devices:
            raise InvalidArgumentError(
                f"{file}: task {task.name} is on device {device}, which is not there.",
                hint=f"Devices are counted from 0 to {num_devices - 1}.",
            )


def _check_memory(placement: TaskPlacement, file: str) -> None:
    capacities = placement.capacities
    if capacities is not None and len(capacities) != placement.num_devices:
        raise InvalidArgumentError(
            f"{file} has the memory of {len(capacities)} devices, and {placement.num_devices} devices.",
            hint="Give one number for all, or one for each.",
            field="memory",
        )
    for device, capacity in enumerate(capacities or ()):
        if not math.isfinite(capacity) or capacity < 0:
            raise InvalidArgumentError(
                f"{file}: device {device} has the memory {capacity}.", hint="Give 0 or more.", field="memory"
            )


def _check_order(placement: TaskPlacement, file: str) -> None:
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for each in placement.dependencies:
        sorter.add(each.after, each.before)
    try:
        sorter.prepare()
    except CycleError as error:
        names = " -> ".join(placement.tasks[i].name for i in error.args[1])
        raise InvalidArgumentError(
            f"{file}: tasks wait for each other in a circle: {names}.", hint="Remove one of these dependencies."
        ) from error
    kinds = {placement.tasks[i].kind for i in range(len(placement.tasks))}
    if kinds and TaskKind.FORWARD not in kinds:
        raise InvalidArgumentError(f"{file} has no forward task.", hint="Set 'kind' to forward where it is one.")
