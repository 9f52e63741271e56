"""Placements of pipeline tasks in files: the artifact's form, and what is wrong with others."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.pipeline_shapes import SHAPES, ShapeOptions, named_placement, with_lag, without_backward
from headway.core.schedule_file import placement_document, placement_of, read_placement
from headway.core.training_placement import training_placement
from tests.core.plans import GIB, TRAINING

K = {
    "devices": 2,
    "tasks": [
        {"name": "F0", "devices": [0], "time": 1, "memory": 1, "kind": "forward"},
        {"name": "F1", "devices": [1], "time": 1, "memory": 1, "kind": "forward"},
        {"name": "F2", "devices": [0, 1], "time": 1, "memory": 1, "kind": "forward"},
        {"name": "B2", "devices": [0, 1], "time": 1, "memory": -1, "kind": "backward"},
        {"name": "B0", "devices": [0], "time": 3, "memory": -1, "kind": "backward"},
        {"name": "B1", "devices": [1], "time": 3, "memory": -1, "kind": "backward"},
    ],
    "dependencies": [[0, 2], [1, 2], [2, 3], [3, 4], [3, 5, 0.5]],
    "lower_bound_period": 6,
}


def test_a_file_is_read_and_written_back() -> None:
    placement = read_placement(json.dumps({"note": "", "placements": {"K": K}}), file="p.json", name="K")
    assert (placement.num_devices, placement.lower_bound, placement.dependencies[-1].lag) == (2, 6, 0.5)
    document = placement_document(placement)
    assert placement_of(document, name="K", file="p.json") == placement


@pytest.mark.parametrize("name", sorted(SHAPES))
@pytest.mark.parametrize("num_devices", [2, 4, 8, 32])
@pytest.mark.parametrize("splits", [False, True])
def test_named_placements_free_what_they_hold(name: str, num_devices: int, splits: bool) -> None:
    placement = named_placement(name, num_devices, ShapeOptions(splits_backward=splits))
    for on in placement.tasks_by_device:
        assert sum(placement.tasks[i].memory for i in on) == 0
    read_placement(json.dumps(placement_document(placement)), file="p.json")
    forward = without_backward(placement)
    assert forward == named_placement(name, num_devices, ShapeOptions(is_training=False))


def test_a_lag_is_for_what_is_on_another_device() -> None:
    lags = [each.lag for each in with_lag(named_placement("M", 2, ShapeOptions()), 2.0).dependencies]
    assert lags == [0, 2, 0, 2, 2]


def test_a_training_plan_is_a_chain_of_its_stages() -> None:
    placement = training_placement(TRAINING)
    stages = TRAINING.stages
    assert placement.num_devices == len(stages)
    assert placement.loads == tuple(stage.forward_s + stage.backward_s for stage in stages)
    assert [task.name for task in placement.tasks] == ["F0", "F1", "B1", "B0"]
    assert sorted((each.before, each.after) for each in placement.dependencies) == [(0, 1), (1, 2), (2, 3)]
    assert {each.lag for each in placement.dependencies} == {0.0, 0.0005}
    # 15 GiB, less weights, gradients, optimizer and workspace.
    assert placement.memory == (5 * GIB, 6.5 * GIB)
    assert [task.memory for task in placement.tasks] == [GIB, 2 * GIB, -2 * GIB, -GIB]


def test_a_training_plan_with_branches_waits_for_all_of_them() -> None:
    first, last = TRAINING.stages
    stages = (replace(first, successors=(2,)), replace(first, successors=(2,)), replace(last, successors=()))
    placement = training_placement(replace(TRAINING, stages=stages))
    pairs = sorted((each.before, each.after) for each in placement.dependencies)
    assert pairs == [(0, 2), (1, 2), (2, 3), (3, 4), (3, 5)]
    assert [task.name for task in placement.tasks] == ["F0", "F1", "F2", "B2", "B1", "B0"]


def test_a_training_plan_has_gradients_of_weights_apart_where_it_knows_them() -> None:
    stages = tuple(replace(stage, weight_gradients_s=0.005) for stage in TRAINING.stages)
    placement = training_placement(replace(TRAINING, stages=stages), splits_backward=True)
    assert [task.name for task in placement.tasks] == ["F0", "F1", "I1", "I0", "W1", "W0"]
    assert placement.loads == pytest.approx((0.03, 0.03))
    assert [task.memory for task in placement.tasks[2:]] == [0, 0, -2 * GIB, -GIB]
    with pytest.raises(FailedPreconditionError, match="Stage 1 has no gradients of weights"):
        training_placement(TRAINING, splits_backward=True)


def test_devices_may_have_unlike_memory() -> None:
    placement = read_placement(json.dumps(K | {"memory": [3, 4.5]}), file="p.json")
    assert placement.capacities == (3, 4.5)
    assert placement_of(placement_document(placement), name=placement.name, file="p.json") == placement


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        *keys, last = path.split(".")
        inner: Any = document
        for key in keys:
            inner = inner[int(key) if key.isdecimal() else key]
        inner[int(last) if last.isdecimal() else last] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("tasks.4.time", 0), "task B0 has the time 0"),
        (_set("tasks.4.time", -1), "task B0 has the time -1"),
        (_set("memory", [1]), "the memory of 1 devices, and 2 devices"),
        (_set("memory", [1, -1]), "device 1 has the memory -1"),
        (_set("tasks.4.time", "soon"), r"tasks\[4\].time should be float"),
        (_set("tasks.1.devices", [2]), "task F1 is on device 2, which is not there"),
        (_set("tasks.1.devices", []), "task F1 has no devices"),
        (_set("tasks.1.kind", "sideways"), r"tasks\[1\].kind"),
        (_set("dependencies.0", [2, 9]), r"\[2, 9\] names no task"),
        (_set("dependencies.0", [2]), r"dependencies\[0\] should be"),
        (_set("dependencies", [[0, 2], [2, 3], [3, 4], [4, 0]]), "wait for each other in a circle: .*F0"),
        (_set("dependencies.4", [3, 5, -1]), "lag between B2 and B1"),
        (_set("speed", 1), "'speed' is unknown"),
    ],
)
def test_what_is_wrong_is_named(change: Callable[[dict[str, Any]], None], said: str) -> None:
    document = json.loads(json.dumps(K))
    change(document)
    with pytest.raises(InvalidArgumentError, match=said):
        read_placement(json.dumps(document), file="p.json")


@pytest.mark.parametrize(("name", "num_devices"), [("K", 3), ("NN", 1), ("Q", 4)])
def test_a_name_or_a_number_of_devices_that_there_is_not(name: str, num_devices: int) -> None:
    with pytest.raises(InvalidArgumentError):
        named_placement(name, num_devices, ShapeOptions())


@pytest.mark.parametrize(
    "text",
    [
        '{"devices": 2, "tasks": [], "dependencies": 0.0}',
        '{"devices": 2, "tasks": 1}',
        '{"placements": {"a": []}}',
        "[" * 100_000,
        '{"devices": ' + "1" * 5000 + "}",
    ],
    ids=["number-for-list", "number-for-tasks", "list-for-object", "deep", "digits"],
)
def test_documents_of_other_shapes_are_refused(text: str) -> None:
    """Found by tests/fuzz."""
    with pytest.raises(InvalidArgumentError):
        read_placement(text, file="tasks.json")
