"""Two versions of Headway in one release of processes: components are replaced one after the other, each by what the
other version's chart says, and back. Streams have the same tokens whichever versions they come through."""

import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.v1 import planner_pb2
from tests.cluster.chart import CHART, VALUES, objects, render
from tests.cluster.controller import Controller
from tests.cluster.release import Release
from tests.cluster.stream import Stream, answers

pytestmark = pytest.mark.timeout(1800)

_OLD, _NEW = "old", "new"
_SERVICES = ("gateway", "router", "kvcache", "planner", "profiler", "controller", "redis")
_SEED = 31


class Versions:
    """A release whose components are each of one of two versions; of the old one at first."""

    def __init__(self, release: Release, models: Path, previous: Path) -> None:
        self.release = release
        charts = {_OLD: previous / "tree" / "helm" / "headway", _NEW: CHART}
        self._rendered = {version: _render(chart, models, version) for version, chart in charts.items()}
        self._version_of: dict[str, str] = {}
        self.make(dict.fromkeys((*_SERVICES, "worker-v100"), _OLD))

    def make(self, version_of: Mapping[str, str]) -> None:
        """Replaces components whose version is another one from now on, and waits until all is ready."""
        self._version_of |= version_of
        self.release.apply(
            [
                document
                for version, rendered in self._rendered.items()
                for document in rendered
                if self._version_of.get(_component(document), _OLD) == version
            ]
        )
        self.release.wait_until_ready()
        self.release.wait(lambda: answers(self.release.endpoints()), "requests are answered")

    def told(self) -> set[str]:
        """The versions that gateways say they are."""
        return {httpx.get(f"{url}/version", timeout=30).json()["version"] for url in self.release.endpoints()}


def _render(chart: Path, models: Path, version: str) -> list[dict[str, Any]]:
    changes = {
        "modelStorage": {"hostPath": str(models)},
        "controller": {"replicas": 2},
        "image": {"services": {"tag": version}},
    }
    return objects(render(VALUES["emulated"], changes=changes, chart=chart))


def _component(document: Mapping[str, Any]) -> str:
    component: str = document["metadata"]["labels"]["app.kubernetes.io/component"]
    return component


@pytest.fixture(scope="module")
def versions(timed_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versions]:
    previous = Path(os.environ["HEADWAY_PREVIOUS"])
    pythons = {_OLD: previous / ".venv" / "bin" / "python"}
    with Release(tmp_path_factory.mktemp("versions"), pythons=pythons) as release:
        yield Versions(release, timed_models, previous)


@pytest.fixture(scope="module")
def undisturbed(versions: Versions) -> str:
    """The text of the stream by the old version alone."""
    return Stream(versions.release.endpoints()[0]).text()


@pytest.mark.parametrize("version", [_NEW, _OLD])
def test_components_are_replaced_by_those_of_another_version_under_streams(
    versions: Versions, undisturbed: str, version: str
) -> None:
    """The services one by one, in an order that differs there and back; then the workers."""
    services = list(_SERVICES)
    random.Random(f"{_SEED} {version}").shuffle(services)
    before = versions.told()
    for component in services:
        streams = _streams(versions)
        versions.make({component: version})
        assert {stream.text() for stream in streams} == {undisturbed}, f"across the {component}'s replacement"
        assert Stream(versions.release.endpoints()[0]).text() == undisturbed, f"with the {component} replaced"
    assert not before & versions.told()
    _move_a_group(versions, undisturbed)
    streams = _streams(versions)
    versions.make({"worker-v100": version})
    assert {stream.text() for stream in streams} == {undisturbed}, "across the workers' replacement"
    assert Stream(versions.release.endpoints()[0]).text() == undisturbed


def _streams(versions: Versions) -> list[Stream]:
    """Four, on all gateways."""
    urls = versions.release.endpoints()
    return [Stream(urls[index % len(urls)]) for index in range(4)]


def _move_a_group(versions: Versions, undisturbed: str) -> None:
    """A controller of one version has workers of the other drain a group, and load it again, under streams."""
    release = versions.release
    controllers = [Controller(release, pod) for pod in release.of("controller")]
    active = next(each for each in controllers if each.is_ready())
    plan = active.plan()
    fewer = planner_pb2.ServingPlan()
    fewer.CopyFrom(plan)
    fewer.assignments.pop()
    streams = _streams(versions)
    for wanted in (fewer, plan):
        active.apply(wanted)
        release.wait(active.is_ready, "the plan is carried out")
    assert {stream.text() for stream in streams} == {undisturbed}, "while a group is drained and loaded"
