"""A real Prometheus scrapes an emulated release as the chart's PodMonitor says: each query has series to show."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.chart import VALUES, objects, render
from tests.cluster.monitoring import compared, config_of, panels_of, queries_of, rules_of
from tests.cluster.release import Release
from tests.cluster.stream import Stream, answers
from tests.prometheus import Prometheus, prometheus

# Panels of which an emulated release has no series, and why. One that comes to have some is to be taken off.
SILENT = {
    ("headway-engines", "Collectives"): "ranks of emulated devices compute nothing, so they send each other nothing",
    ("headway-training", "*"): "training runs are no part of a release; tests/train has their figures",
}
_FIRST_WORKER_PORT = 9100
_HURRIED, _PATIENT = "0.001", "60000"


@dataclass(frozen=True, slots=True)
class Monitored:
    """A release that was rendered with all of its monitoring, and what scrapes it."""

    release: Release
    objects: list[dict[str, Any]]
    prometheus: Prometheus

    def silent(self) -> set[tuple[str, str]]:
        """Panels with a query that returns nothing."""
        return {
            (uid, "*" if (uid, "*") in SILENT else panel["title"])
            for uid, panel in panels_of(self.objects)
            if not all(self.prometheus.query(expr) for expr in queries_of(panel))
        }


@pytest.fixture(scope="module")
def monitored(timed_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    """After a worker has died, a cell was deleted under its streams, all were killed, and a model found no room."""
    found = _rendered(timed_models)
    with Release(tmp_path_factory.mktemp("release")) as release:
        release.apply(found)
        release.wait_until_ready()
        _disturb(release)
        directory = tmp_path_factory.mktemp("prometheus")
        config, rules = config_of(found, release.of("")), rules_of(found)
        with prometheus(directory, config=config, rules=rules) as running:
            result = Monitored(release, found, running)
            release.wait(lambda: _is_shown(result), "all has been scraped", timeout_s=90)
            yield result


def _rendered(models: Path) -> list[dict[str, Any]]:
    """With one model that no four V100 hold, and that may sleep."""
    changes = {
        "modelStorage": {"hostPath": str(models)},
        "controller": {"replicas": 2},
        "models": [
            {"name": "tiny", "path": "/models/tiny"},
            {"name": "huge", "path": "/models/huge", "replicas": {"min": 0}},
        ],
        "monitoring": {
            "podMonitor": {"enabled": True, "interval": "1s"},
            "rules": {"enabled": True},
            "dashboards": {"enabled": True},
        },
    }
    return objects(render(VALUES["emulated"], changes=changes))


def _disturb(release: Release) -> None:
    """Counters of what went wrong begin with the first time, and end with their process."""
    for cell in release.of("worker"):
        cell.kill()
    release.wait(lambda: answers(release.endpoints()), "what had no place has been answered")
    release.wait_until_ready()
    streams = [Stream(release.endpoints()[0]) for _ in range(4)]
    left = release.busiest_cell()
    release.delete(left)
    assert len({stream.text() for stream in streams}) == 1
    release.wait_until_ready()
    renewed = release.pods[left.name]
    [killed] = renewed.listeners(_FIRST_WORKER_PORT)
    killed.kill()
    release.wait(lambda: renewed.listeners(_FIRST_WORKER_PORT) not in ([], [killed]), "its cell has started it again")
    release.wait_until_ready()
    body = {"model": "huge", "prompt": "one two three", "max_tokens": 4}
    assert httpx.post(f"{release.endpoints()[0]}/v1/completions", json=body, timeout=60).status_code == 503


def _is_shown(monitored: Monitored) -> bool:
    """Rates want two scrapes of a counter, and requests between them where they are divided by one another."""
    for slo_ms in (_PATIENT, _HURRIED):
        body = {"model": "tiny", "prompt": "one two three four", "max_tokens": 4, "ignore_eos": True}
        for url in monitored.release.endpoints():
            headers = {"x-headway-slo-ttft-ms": slo_ms}
            httpx.post(f"{url}/v1/completions", json=body, headers=headers, timeout=60)
    return monitored.silent() <= SILENT.keys() and not _uncompared(monitored)


def _uncompared(monitored: Monitored) -> set[str]:
    """Alerts of which something that they compare has no series."""
    alerts = [rule for rule in monitored.prometheus.rules() if rule["type"] == "alerting"]
    return {
        alert["name"]
        for alert in alerts
        if not all(monitored.prometheus.query(part) for part in compared(alert["query"]))
    }


def test_every_process_is_scraped_under_its_name(monitored: Monitored) -> None:
    """Redis is not ours, and tells nothing."""
    pods = [pod for pod in monitored.release.of("") if pod.component != "redis"]
    workers = [f"{pod.name}-{index}" for pod in monitored.release.of("worker") for index in range(2)]
    targets = monitored.prometheus.targets()
    assert [target["lastError"] for target in targets if target["health"] != "up"] == []
    told = {(target["labels"]["process"], target["labels"]["component"]) for target in targets}
    assert told == {*((pod.name, pod.component) for pod in pods), *((name, "worker") for name in workers)}
    assert len(targets) == len(told)


def test_every_query_of_a_dashboard_returns_series(monitored: Monitored) -> None:
    assert monitored.silent() == SILENT.keys()


def test_the_labels_that_legends_name_are_there(monitored: Monitored) -> None:
    for uid, panel in panels_of(monitored.objects):
        for target, expr in zip(panel["targets"], queries_of(panel), strict=True):
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            for series in monitored.prometheus.query(expr):
                assert named <= series["metric"].keys(), f"{uid}, {panel['title']}: {series['metric']}"


def test_metrics_keep_the_labels_that_queries_name(monitored: Monitored) -> None:
    assert monitored.prometheus.renamed_labels() == []


def test_what_every_alert_compares_has_series(monitored: Monitored) -> None:
    assert _uncompared(monitored) == set()


def test_the_operator_would_accept_every_rule(monitored: Monitored) -> None:
    rules = monitored.prometheus.rules()
    [written] = [each["spec"] for each in monitored.objects if each["kind"] == "PrometheusRule"]
    assert len(rules) == sum(len(group["rules"]) for group in written["groups"])
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []


def test_as_many_processes_are_told_as_there_are(monitored: Monitored) -> None:
    """By the controller that is at work; cells tell only of their own workers."""
    told = monitored.prometheus.query("max by (kind) (headway:processes_ready)")
    counts = {series["metric"]["kind"]: int(series["value"][1]) for series in told}
    assert {kind: counts[kind] for kind in ("gateway", "router", "cell", "worker")} == {
        "gateway": 2,
        "router": 2,
        "cell": 2,
        "worker": 4,
    }
