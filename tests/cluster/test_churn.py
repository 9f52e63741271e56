"""A release on a real node under a steady load, to which one thing after the other happens: no request fails, each
stream is the undisturbed one and pauses for five seconds at most, and at the end nothing is left over."""

import os
import random
import time

import httpx
import pytest

from tests.chaos.storm import draw
from tests.chaos.under_way import open_books
from tests.cluster.churn import Churn
from tests.cluster.cluster import NAMESPACE, RESOURCES
from tests.cluster.installation import NUM_PODS, Installation
from tests.cluster.load import MODEL, Load
from tests.cluster.memory import Memory

_MINUTES = float(os.environ["HEADWAY_CHURN_MINUTES"])
_SEED = int(os.environ.get("HEADWAY_CHURN_SEED") or random.randrange(10**6))
_MOST = 10_000
_NUM_WORKERS = 4

pytestmark = pytest.mark.timeout(60 * _MINUTES + 1800)


def test_whatever_happens_one_after_the_other_no_client_notices(
    installation: Installation, undisturbed: dict[int, str]
) -> None:
    served, churn, memory = installation, Churn(installation), Memory(installation)
    assert not served.declare(MODEL)
    churn.settle()
    print(f"\nThis churn can be had again with SEED={_SEED}.", flush=True)
    deadline_s = time.monotonic() + 60 * _MINUTES
    with Load(served.url, undisturbed) as load:
        for name in draw(_SEED, list(churn.happenings()), num=_MOST):
            if time.monotonic() > deadline_s:
                break
            load.look()
            began_s = time.monotonic()
            print(f"{time.strftime('%H:%M:%S')} {name}:", end=" ", flush=True)
            churn.happenings()[name]()
            churn.settle()
            memory.sample()
            print(f"well again after {time.monotonic() - began_s:.1f} s; {load.look()}", flush=True)
            assert not load.faults, "\n".join(load.faults)
    print(memory.table())
    _assert_nothing_is_left(served)
    assert not memory.grown()


def _assert_nothing_is_left(served: Installation) -> None:
    """Nothing is under way by the books of any process, and there is nobody who is not to be there."""
    served.wait(lambda: not _under_way(served), "nothing is under way")
    assert {kind: len(served.members(kind)) for kind in ("gateway", "router", "cell", "worker", "controller")} == {
        "gateway": 2,
        "router": 2,
        "cell": 2,
        "worker": _NUM_WORKERS,
        "controller": 1,
    }
    assert len(served.pods.all()) == sum(NUM_PODS.values())
    assert [each["metadata"]["name"] for each in served.plane.get(RESOURCES)["items"]] == [MODEL]
    assert not served.plane.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")["items"]


def _under_way(served: Installation) -> list[str]:
    endpoints = {
        (kind, pod.name): f"{pod.address}:9090" for kind in ("gateway", "router") for pod in served.pods.of(kind)
    }
    endpoints |= {
        ("worker", f"{pod.name}-{index}"): f"{pod.address}:{9200 + index}"
        for pod in served.pods.of("worker")
        for index in range(_NUM_WORKERS // 2)
    }
    try:
        return [book for process in endpoints.items() for book in open_books(process)]
    except httpx.TransportError as error:
        return [repr(error)]
