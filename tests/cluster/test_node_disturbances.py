"""A release on a real node, under a steady load: no request fails, no stream pauses for long, and each is, token for
token, what it would be undisturbed, whatever ends, is replaced or is away meanwhile."""

import time

import pytest

from tests.cluster.cluster import RESOURCES
from tests.cluster.containers import Container
from tests.cluster.installation import Installation
from tests.cluster.load import MODEL, Load

pytestmark = pytest.mark.timeout(1200)

_AWAY_S = 60.0
_LOADED_WITHIN_S = 10.0
_MERGE = "application/merge-patch+json"


@pytest.fixture
def served(installation: Installation) -> Installation:
    """All is ready, and the model is loaded wherever it is to be."""
    assert not installation.declare(MODEL)
    installation.wait_until_ready()
    installation.wait_for(MODEL, "Loaded")
    return installation


def test_an_upgrade_and_a_rollback_replace_all_but_redis(served: Installation, undisturbed: dict[int, str]) -> None:
    before = served.pods.all()
    with Load(served.url, undisturbed):
        served.upgrade("--set=logLevel=warning")
        served.wait_until_ready()
        assert [pod.component for pod in served.left(before)] == ["redis"]
        between = served.pods.all()
        served.roll_back()
        served.wait_until_ready()
    assert [pod.component for pod in served.left(between)] == ["redis"]


@pytest.mark.parametrize("component", ["router", "worker"])
def test_one_that_is_deleted_by_force_is_made_again(
    served: Installation, undisturbed: dict[int, str], component: str
) -> None:
    """Twice the one that was started last: among routers it is the one that decides."""
    with Load(served.url, undisturbed):
        for _ in range(2):
            newest = max(served.pods.of(component), key=lambda pod: pod.started_at)
            served.delete_by_force(newest)
            served.wait(lambda newest=newest: not served.left([newest]), f"{newest.name} is gone")  # type: ignore[misc]
            served.wait_until_ready()


def test_a_controller_that_is_deleted_amid_a_change_is_succeeded_by_one_that_makes_it(
    served: Installation, undisturbed: dict[int, str]
) -> None:
    """Two workers as a group instead of two alone, and back: no pod but the controller's is replaced."""
    active = served.active_controller()
    before = [pod for pod in served.pods.all() if pod.uid != active.uid]
    with Load(served.url, undisturbed):
        assert not served.declare(MODEL, parallelism={"tp": 2})
        served.delete_by_force(active)
        served.wait(lambda: served.status(MODEL).get("layout") == "tp 2", "the layout is another one")
        served.wait_for(MODEL, "Loaded")
        assert not served.declare(MODEL, parallelism={"tp": 1})
        served.wait(lambda: served.status(MODEL).get("layout") != "tp 2", "the layout is as before")
        served.wait_for(MODEL, "Loaded")
    assert served.left(before) == before


def test_layouts_that_are_patched_replace_no_pod(served: Installation, undisturbed: dict[int, str]) -> None:
    """One stage after the other becomes one beside the other, on the same workers."""
    before = {pod.uid: pod.num_starts for pod in served.pods.all()}
    with Load(served.url, undisturbed):
        for layout, parallelism in (("pp 2", {"tp": 1, "pp": 2}), ("tp 2", {"tp": 2, "pp": 1})):
            served.patch(MODEL, parallelism=parallelism)
            served.wait(lambda layout=layout: served.status(MODEL).get("layout") == layout, layout)  # type: ignore[misc]
            served.wait_for(MODEL, "Loaded")
        served.patch(MODEL, parallelism=None)
        served.wait_for(MODEL, "Loaded")
    assert {pod.uid: pod.num_starts for pod in served.pods.all()} == before


def test_every_pod_is_evicted_once(served: Installation, undisturbed: dict[int, str]) -> None:
    """Redis and the second of each kind once the others are there again; before that the budgets forbid the second."""
    pods = {pod.component: pod for pod in served.pods.all()}
    others = [pod for pod in served.pods.all() if pod not in pods.values()]
    last = [pods.pop("redis"), *others]
    with Load(served.url, undisturbed):
        assert {served.evict(pod) for pod in pods.values()} == {201}
        assert [served.evict(pod) for pod in others] == [429] * 4
        served.wait(lambda: not served.left(pods.values()), "the first are gone")
        served.wait_until_ready()
        assert {served.evict(pod) for pod in last} == {201}
        served.wait(lambda: not served.left(last), "the others are gone")
        served.wait_until_ready()


def test_a_cell_whose_first_process_is_killed_loads_its_models_again(
    served: Installation, undisturbed: dict[int, str]
) -> None:
    """Its address, ports and process numbers are those of the run before."""
    cell = served.pods.of("worker")[0]
    with Load(served.url, undisturbed):
        served.kill(cell)
        killed_s = time.time()
        served.wait(lambda: _num_loaded(served, cell, since_s=killed_s) == 2, "its workers have their model")
        took_s = time.time() - killed_s
        served.wait(lambda: _starts(served, cell) == cell.num_starts + 1, "its container was started again")
        served.wait_until_ready()
        served.wait_for(MODEL, "Loaded")
    print(f"loaded again after {took_s:.1f} s")
    assert took_s < _LOADED_WITHIN_S
    assert served.left([cell])


def test_with_an_emptied_redis_the_same_models_are_ready_without_being_applied_again(
    served: Installation, undisturbed: dict[int, str]
) -> None:
    before = served.status(MODEL)
    store = served.redis()
    with Load(served.url, undisturbed):
        store.flushall()
        served.wait(lambda: bool(store.exists("headway:plan-current")), "there is a plan again")
        served.wait_until_ready()
        served.wait_for(MODEL, "Loaded")
    assert served.status(MODEL)["groups"] == before["groups"]


def test_while_the_api_server_is_away_nothing_ends(served: Installation, undisturbed: dict[int, str]) -> None:
    before = {pod.uid: pod.num_starts for pod in served.pods.all()}
    with Load(served.url, undisturbed):
        served.plane.kill_api_server()
        time.sleep(_AWAY_S)
        served.plane.start_api_server()
        served.wait_until_ready()
    assert {pod.uid: pod.num_starts for pod in served.pods.all()} == before


def test_a_status_that_is_edited_by_hand_is_put_right(served: Installation, undisturbed: dict[int, str]) -> None:
    """By a controller that could not reach the API server a moment ago."""
    true = served.status(MODEL)
    body = {"status": {"groups": "9/9", "planId": "invented"}}
    with Load(served.url, undisturbed):
        path = f"{RESOURCES}/{MODEL}/status"
        assert served.plane.call("PATCH", path, body, kind=_MERGE).is_success
        served.wait(lambda: served.status(MODEL) == true, "the status is as it was")


def _num_loaded(served: Installation, cell: Container, *, since_s: float) -> int:
    """How many workers of a cell, started since then, have their model."""
    workers = (each for each in served.members("worker") if each["member_id"].rpartition("-")[0] == cell.name)
    return sum(each["started_at_s"] > since_s and MODEL in each["models"] for each in workers)


def _starts(served: Installation, pod: Container) -> int:
    return next((each.num_starts for each in served.pods.all() if each.uid == pod.uid), 0)
