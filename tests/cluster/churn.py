"""What happens to a release on a real node, one after the other, in an order that a seed gives."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from tests.cluster.containers import Container
from tests.cluster.installation import NUM_PODS, Installation
from tests.cluster.load import MODEL, client_of

_TWO_OF = ("gateway", "router", "controller")
_ALONE = ("kvcache", "planner", "profiler", "redis")
_AWAY_S = 15.0
_ANOTHER = "another"


class Churn:
    """Disturbances of a release, by their names; each has come to its end, but for what `settle` waits for."""

    def __init__(self, served: Installation) -> None:
        self._served = served
        self._num_upgrades = 0

    def happenings(self) -> dict[str, Callable[[], None]]:
        """A gateway is never ended at once: nobody but its client could take up what it has begun to send."""
        kinds = (*_TWO_OF, "worker", *_ALONE)
        ended = [kind for kind in kinds if kind != "gateway"]
        return (
            {f"evict a {kind}": partial(self._evict, kind) for kind in kinds}
            | {f"delete a {kind} by force": partial(self._delete_by_force, kind) for kind in ended}
            | {f"kill the first process of a {kind}": partial(self._kill, kind) for kind in ended}
            | {f"one {kind} more, and one less": partial(self._scale, kind) for kind in _TWO_OF}
            | {
                "helm upgrade": self._upgrade,
                "helm rollback": self._roll_back,
                "a model comes and goes": self._add_a_model,
                "two groups of a model, and back": self._change_replicas,
                "two stages, and back": self._change_layout,
                "FLUSHALL": self._flush,
                f"the API server is away for {_AWAY_S:g} s": self._lose_the_api_server,
            }
        )

    def settle(self) -> None:
        """Until all is as it was before."""
        self._served.wait(lambda: self._num_pods() == NUM_PODS, "there are as many pods as there are to be")
        self._served.wait_until_ready()
        self._served.wait_for(MODEL, "Loaded")

    def _num_pods(self) -> dict[str, int]:
        pods = [pod.component for pod in self._served.pods.all()]
        return {component: pods.count(component) for component in sorted(set(pods))}

    def _newest(self, kind: str) -> Container:
        """Of routers and controllers it is the one that is at work, or soon was."""
        return max(self._served.pods.of(kind), key=lambda pod: pod.started_at)

    def _evict(self, kind: str) -> None:
        pod = self._newest(kind)
        self._served.wait(lambda: self._served.evict(pod) == 201, f"{pod.name} may be evicted")
        self._await_end(pod)

    def _delete_by_force(self, kind: str) -> None:
        pod = self._newest(kind)
        self._served.delete_by_force(pod)
        self._await_end(pod)

    def _await_end(self, pod: Container) -> None:
        self._served.wait(lambda: not self._served.left([pod]), f"{pod.name} is gone")

    def _kill(self, kind: str) -> None:
        pod = self._newest(kind)
        self._served.kill(pod)
        self._served.wait(lambda: self._num_starts(pod) > pod.num_starts, f"{pod.name} is started again")

    def _num_starts(self, pod: Container) -> int:
        return next((each.num_starts for each in self._served.pods.all() if each.uid == pod.uid), 0)

    def _scale(self, kind: str) -> None:
        for num in (3, 2):
            self._served.scale(kind, num)
            self._served.wait(lambda num=num: len(self._served.pods.of(kind)) == num, f"{num} of {kind}")  # type: ignore[misc]
            self._served.wait_until_ready()

    def _upgrade(self) -> None:
        """Every pod is replaced."""
        self._num_upgrades += 1
        self._served.upgrade(f"--set-string=podAnnotations.churn={self._num_upgrades}")

    def _roll_back(self) -> None:
        if not self._num_upgrades:
            self._upgrade()
        self._served.roll_back()

    def _add_a_model(self) -> None:
        """It is asked, and those that were there give groups up for it, and get them back."""
        served, before = self._served, self._shape()
        assert not served.declare(_ANOTHER, path=str(served.models / MODEL))
        served.wait_for(_ANOTHER, "Loaded")
        with client_of(served.url) as client:
            answer = client.completions.create(model=_ANOTHER, prompt="Headway", max_tokens=4)
        assert answer.choices[0].text
        served.delete(_ANOTHER)
        served.wait(lambda: self._shape() == before, "the other model is as before")

    def _change_replicas(self) -> None:
        before = self._shape()
        self._reshape({"replicas": {"min": 2, "max": 2}, "parallelism": {"tp": 1}}, ("2/2", "one worker"))
        self._reshape({}, before)

    def _change_layout(self) -> None:
        before = self._shape()
        self._reshape({"parallelism": {"tp": 1, "pp": 2}}, ("2/2", "pp 2"))
        self._reshape({}, before)

    def _reshape(self, spec: dict[str, Any], shape: tuple[str, str]) -> None:
        self._served.patch(MODEL, **{"replicas": None, "parallelism": None} | spec)
        self._served.wait(lambda: self._shape() == shape, f"the model is served by {shape}")
        self._served.wait_for(MODEL, "Loaded")

    def _shape(self) -> tuple[str, str]:
        """How many groups the model has, of those that it is to have, and their layout."""
        status = self._served.status(MODEL)
        return status.get("groups", ""), status.get("layout", "")

    def _flush(self) -> None:
        """A pod that is ready is not behind its Service's address at once."""
        store = self._served.redis()
        self._served.wait(lambda: _answers(store), "Redis answers")
        store.flushall()
        self._served.wait(lambda: bool(store.exists("headway:plan-current")), "there is a plan again")

    def _lose_the_api_server(self) -> None:
        self._served.plane.kill_api_server()
        time.sleep(_AWAY_S)
        self._served.plane.start_api_server()


def _answers(store: Redis) -> bool:
    try:
        return bool(store.ping())
    except RedisConnectionError:
        return False
