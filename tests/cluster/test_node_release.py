"""The chart, installed by Helm on a real node: it is ready, and serves what is declared as `headway up` does."""

from pathlib import Path

import pytest

from headway.checkpoint.model_digest import digest_of
from tests.cluster import load
from tests.cluster.cluster import NAMESPACE
from tests.cluster.installation import Installation
from tests.fetch.hub import COMMIT, serving_hub

pytestmark = pytest.mark.timeout(900)

_TWICE = ["controller", "gateway", "router"]
_COMPONENTS = sorted([*_TWICE, *_TWICE, "kvcache", "planner", "profiler", "redis"])


def test_every_pod_is_ready_before_a_model_is_declared(installation: Installation) -> None:
    """`helm install --wait` has returned: the router that stands by is ready too, and so are cells with nothing to do.
    Release and Service are called headway, whose variables would be taken for ours."""
    pods = installation.pods.all()
    assert sorted(pod.component for pod in pods) == [*_COMPONENTS, "worker-v100", "worker-v100"]
    assert installation.pods.are_ready()


def test_a_declared_model_streams_the_tokens_that_headway_up_gives(
    installation: Installation, undisturbed: dict[int, str]
) -> None:
    assert not installation.declare(load.MODEL)
    installation.wait_for(load.MODEL, "Loaded")
    installation.wait_for(load.MODEL, "Ready")
    assert load.texts(installation.url) == undisturbed


def test_the_command_of_the_notes_tells_what_runs(installation: Installation) -> None:
    """From within a pod, which finds the Service by its name, and has the release's token."""
    notes = installation.plane.helm("get", "notes", "headway", "--namespace", NAMESPACE).stdout
    [command] = [line.split() for line in notes.splitlines() if "headway status" in line]
    told = installation.plane.kubectl(*command[1:])
    assert told.returncode == 0, told.stderr
    assert all(f"{pod.name}-{index}" in told.stdout for pod in installation.pods.of("worker") for index in range(2))


def test_no_container_had_to_be_started_again(installation: Installation) -> None:
    assert {pod.name: pod.num_starts for pod in installation.pods.all() if pod.num_starts != 1} == {}


def test_a_model_that_is_elsewhere_is_fetched_by_a_pod_and_served(installation: Installation, models: Path) -> None:
    """A pod of a restricted namespace, without rights, brings it to the volume that all others only read."""
    with serving_hub(installation.plane.address[0]) as hub:
        hub.models["acme/tiny"] = models / "tiny"
        mirror = "modelStorage.fetch.env[0]"
        installation.upgrade(f"--set={mirror}.name=HF_ENDPOINT", f"--set-string={mirror}.value={hub.url}")
        installation.wait_until_ready()
        assert not installation.declare("fetched", path=None, uri="hf://acme/tiny")
        installation.wait_for("fetched", "Ready")
    installation.wait(lambda: installation.answers("fetched"), "it is answered for")
    fetched = installation.status("fetched")["fetched"]
    assert (fetched["version"], fetched["sha256"]) == (COMMIT, digest_of(models / "tiny"))
    installation.delete("fetched")
