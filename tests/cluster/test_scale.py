"""Pretended workers of two kinds on two hundred nodes: sixty models are placed, and each change costs few calls and no
loads but those that it needs.

What it took is printed: `pytest -s`. Bounds are of calls and of loads, which don't depend on the machine.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.fleet import Fleet, Kind, go_on, installed_fleet, stop

pytestmark = pytest.mark.timeout(900)

_SMALL = Kind(pool="v100", device="V100-16", cells=160, workers=1, num_spare=3)
_LARGE = Kind(pool="a100", device="A100-40", cells=40, workers=2, num_spare=2)
_NUM_WORKERS = _SMALL.num_workers + _LARGE.num_workers
_LONE = [f"model-{index}" for index in range(42)]
_GANGS = [f"gang-{index}" for index in range(18)]
_NUM_MODELS = len(_LONE) + len(_GANGS)
_GANG = {"parallelism": {"tp": 2, "pp": 2}, "pools": [_LARGE.pool]}
"""Served by four workers, of two cells."""
_NUM_WATCHES = 2
"""Calls for a watch that ends meanwhile and is opened anew."""


@pytest.fixture(scope="module")
def fleet(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with installed_fleet(models, tmp_path_factory.mktemp("fleet"), (_SMALL, _LARGE)) as running:
        yield running


def _declare_all(fleet: Fleet, **spec: object) -> None:
    """All models of one directory, by one command."""
    spec = {"path": str(fleet.models / "tiny"), **spec}
    items = [json.loads(fleet.resource(name, **spec)) for name in _LONE]
    items += [json.loads(fleet.resource(name, **spec, **_GANG)) for name in _GANGS]
    result = fleet.plane.kubectl("apply", "-f-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert result.returncode == 0, result.stderr


def test_many_models_are_placed_on_all_workers_of_both_kinds(fleet: Fleet) -> None:
    with fleet.costing(f"{_NUM_MODELS} models on {_NUM_WORKERS} workers", most=6 * _NUM_MODELS):
        _declare_all(fleet)
        fleet.start()
        fleet.wait(lambda: fleet.are_loaded(_NUM_MODELS), "all are loaded")
    loaded = fleet.loads(what="loaded")
    assert len(loaded) == len({load.worker for load in loaded}) == _NUM_WORKERS
    for load in loaded:
        assert len(load.group) == (4 if load.model in _GANGS else 1)
        assert _LARGE.pool in load.worker or load.model in _LONE
    gangs = {load.group for load in loaded if load.model in _GANGS}
    assert len(gangs) == len(_GANGS)
    assert all(len({worker.rpartition("-")[0] for worker in gang}) == 2 for gang in gangs), "whole cells"


def test_one_more_gang_takes_the_workers_of_four_models(fleet: Fleet) -> None:
    before = fleet.num_groups()
    with fleet.costing("one more gang", most=5 * 5 + _NUM_WATCHES):
        assert not fleet.declare("another-gang", path=str(fleet.models / "tiny"), **_GANG)
        fleet.wait(lambda: fleet.are_loaded(_NUM_MODELS + 1), "all are loaded")
    after = fleet.num_groups()
    assert [load.model for load in fleet.loads(what="loaded")] == 4 * ["another-gang"]
    assert after.pop("another-gang") == 1
    assert sum(before.values()) - sum(after.values()) == 4
    assert all(before[name] - after[name] in (0, 1) for name in before)


def test_one_more_model_takes_groups_of_the_others_one_of_each(fleet: Fleet) -> None:
    before = fleet.num_groups()
    with fleet.costing("one more model", most=5 * 5 + _NUM_WATCHES):
        assert not fleet.declare("another", path=str(fleet.models / "tiny"))
        fleet.wait(lambda: fleet.are_loaded(_NUM_MODELS + 2), "all are loaded")
    after = fleet.num_groups()
    num_own = after.pop("another")
    assert [load.model for load in fleet.loads(what="loaded")] == num_own * ["another"]
    assert sum(before.values()) - sum(after.values()) == num_own
    assert all(before[name] - after[name] in (0, 1) for name in before)


def test_of_two_with_one_name_the_older_has_it_and_nothing_moves(fleet: Fleet) -> None:
    plan_id = fleet.plan_id()
    with fleet.costing("a name that is taken", most=2 + _NUM_WATCHES):
        assert not fleet.declare("thief", path=str(fleet.models / "tiny"), servedName="model-0")
        fleet.wait(lambda: fleet.conditions("thief").get("Planned") == ("False", "NameTaken"), "the name is taken")
        fleet.delete("thief")
    assert fleet.plan_id() == plan_id
    assert fleet.loads() == []


def test_workers_of_lost_nodes_are_loaded_again_elsewhere_and_with_them_their_gangs(fleet: Fleet) -> None:
    """As an operator says that nodes are out of service: Kubernetes makes their pods anew on others."""
    plan_id, groups, nodes = fleet.plan_id(), fleet.groups(), fleet.nodes()
    cells = sorted(cell for cell in nodes if _SMALL.pool in cell)[: _SMALL.num_spare]
    gangs = sorted(group for worker, group in groups.items() if len(group) > 1 and worker == group[0])
    cells += [gang[0].rpartition("-")[0] for gang in gangs[: _LARGE.num_spare]]
    lost = [nodes[cell] for cell in cells]
    concerned = {mate for worker, group in groups.items() if worker.rpartition("-")[0] in cells for mate in group}
    with fleet.costing(f"{len(lost)} nodes are lost", most=4 * len(lost) + _NUM_WATCHES):
        taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        result = fleet.plane.kubectl("taint", "node", *lost, taint)
        assert result.returncode == 0, result.stderr
        fleet.wait(lambda: set(fleet.nodes()) == set(nodes), "all cells run")
        fleet.wait(lambda: set(fleet.nodes().values()).isdisjoint(lost), "they are elsewhere")
        fleet.wait(lambda: len(fleet.loads(what="loaded")) >= len(concerned), "their workers are loaded")
        fleet.wait(lambda: fleet.are_loaded(_NUM_MODELS + 2), "all are loaded")
    loaded = fleet.loads(what="loaded")
    assert len(concerned) == _SMALL.num_spare + 4 * _LARGE.num_spare
    assert sorted(load.worker for load in loaded) == sorted(concerned), "once each, and nobody else"
    assert fleet.plan_id() == plan_id


def test_the_controller_that_stands_by_ends_what_one_that_is_killed_has_begun(fleet: Fleet) -> None:
    fleet.wait(fleet.has_two_controllers, "one stands by")
    killed, epoch, plan_id = fleet.leader(), fleet.epoch(), fleet.plan_id()
    with fleet.costing("all models change, the controller is killed", most=10 * _NUM_MODELS):
        _declare_all(fleet, maxModelLen=64)
        fleet.wait(lambda: fleet.plan_id() != plan_id, "another plan is under way")
        fleet.wait(lambda: len(fleet.loads(what="loaded")) > _NUM_MODELS, "some are loaded")
        killed.kill()
        fleet.wait(lambda: fleet.epoch() > epoch, "the other one is at work")
        fleet.wait(lambda: fleet.are_loaded(_NUM_MODELS + 2), "all are loaded")
    assert fleet.leader() is not killed
    times = Counter(load.work for load in fleet.loads(what="loaded"))
    assert set(times.values()) == {1}, "no run of a worker has loaded anything twice"
    assert {load.epoch for load in fleet.loads(what="loaded")} == {epoch, epoch + 1}


def test_a_controller_that_stood_still_changes_nothing_when_another_one_is_at_work(fleet: Fleet) -> None:
    fleet.wait(fleet.has_two_controllers, "one stands by")
    stopped, epoch, plan_id = fleet.leader(), fleet.epoch(), fleet.plan_id()
    num_starts = stopped.num_starts
    with fleet.costing("all models change twice, the controller stands still", most=20 * _NUM_MODELS):
        _declare_all(fleet, maxModelLen=96)
        fleet.wait(lambda: fleet.plan_id() != plan_id, "another plan is under way")
        fleet.wait(lambda: len(fleet.loads(what="loaded")) > _NUM_MODELS, "some are loaded")
        stop(stopped)
        fleet.wait(lambda: fleet.epoch() > epoch, "the other one is at work")
        fleet.wait(lambda: fleet.are_loaded(_NUM_MODELS + 2), "all are loaded")
        told = fleet.loads()
        first = next(place for place, load in enumerate(told) if load.epoch > epoch)
        before = {load.work for load in told[:first] if load.what == "loaded"}
        assert before.isdisjoint(load.work for load in told[first:] if load.what == "begun"), "loaded once"
        _declare_all(fleet, maxModelLen=128)
        fleet.wait(lambda: fleet.are_loaded(_NUM_MODELS + 2), "all are loaded")
    assert fleet.leader() is not stopped
    assert fleet.refuse_all(epoch=epoch)
    fleet.forget()
    plan_id, num_changes = fleet.plan_id(), fleet.num_changes()
    go_on(stopped)
    fleet.wait(lambda: stopped.num_starts > num_starts and fleet.has_two_controllers(), "it stands by")
    print(f"of one that went on, {len(fleet.loads(what='refused'))} loads were refused", flush=True)
    assert {load.what for load in fleet.loads()} <= {"refused"}
    # A change may have been on its way when it stood still, which the other one sets right.
    assert fleet.num_changes() - num_changes <= 2
    assert fleet.plan_id() == plan_id
    assert fleet.are_loaded(_NUM_MODELS + 2)


def test_where_nothing_changes_nothing_is_written(fleet: Fleet) -> None:
    with fleet.costing("five seconds of nothing", most=_NUM_WATCHES):
        time.sleep(5)
    assert fleet.loads() == []
