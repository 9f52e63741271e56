"""What the Prometheus operator and Grafana make of a release's objects, where its pods are processes."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from tests.cluster.pod import Pod
from tests.prometheus import RULES

_COMPARISON = re.compile(r"\s*(?:[<>]=?|[!=]=)\s*[\d.]+$")


def config_of(objects: Iterable[Mapping[str, Any]], pods: Sequence[Pod]) -> str:
    """Prometheus's configuration: for each endpoint of the PodMonitor a job that scrapes the pods which have its
    port."""
    [spec] = [each["spec"] for each in objects if each["kind"] == "PodMonitor"]
    selected = [pod for pod in pods if spec["selector"]["matchLabels"].items() <= pod.labels.items()]
    return yaml.safe_dump(
        {
            "global": {"evaluation_interval": "1s"},
            "rule_files": [RULES],
            "scrape_configs": [_job(endpoint, selected) for endpoint in spec["podMetricsEndpoints"]],
        }
    )


def rules_of(objects: Iterable[Mapping[str, Any]]) -> str:
    """The file of rules that a PrometheusRule is."""
    [spec] = [each["spec"] for each in objects if each["kind"] == "PrometheusRule"]
    return yaml.safe_dump(spec)


def panels_of(objects: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The dashboards' uids, with their panels as Grafana would load them from the labelled ConfigMaps."""
    for each in objects:
        if each["kind"] == "ConfigMap" and each["metadata"]["labels"].get("grafana_dashboard") == "1":
            for text in each["data"].values():
                dashboard = json.loads(text)
                yield from ((dashboard["uid"], panel) for panel in dashboard["panels"] if panel["type"] != "row")


def queries_of(panel: Mapping[str, Any]) -> list[str]:
    """With all values of its variables."""
    return [
        re.sub(r"\$(?!__)\w+", ".*", target["expr"]).replace("$__rate_interval", "1m") for target in panel["targets"]
    ]


def compared(expr: str) -> list[str]:
    """What an alert compares with its bounds: the alert itself has series only while it fires."""
    return [_COMPARISON.sub("", part) for part in re.split(r"\s+and\s+", expr.strip())]


def _job(endpoint: Mapping[str, Any], pods: Sequence[Pod]) -> dict[str, Any]:
    port = endpoint["port"]
    return {
        "job_name": port,
        "scrape_interval": endpoint["interval"],
        "static_configs": [_target(pod, pod.ports[port]) for pod in pods if port in pod.ports],
        "relabel_configs": [
            {re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", name): value for name, value in each.items()}
            for each in endpoint["relabelings"]
        ],
    }


def _target(pod: Pod, port: int) -> dict[str, Any]:
    """As Kubernetes' service discovery describes it."""
    labels = {f"pod_label_{re.sub('[^a-zA-Z0-9_]', '_', name)}": value for name, value in pod.labels.items()}
    described = labels | {"pod_name": pod.name}
    return {
        "targets": [f"{pod.address}:{port}"],
        "labels": {f"__meta_kubernetes_{name}": value for name, value in described.items()},
    }
