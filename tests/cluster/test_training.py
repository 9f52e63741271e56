"""A training run in pods of a cluster: given to it, followed, stopped and begun again by `headway train`.

Pods pretend to run; what they would run is tests/train/test_pods.py's.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headway.cli.train import app
from headway.cli.training_run.manifest import PodOptions, run_manifest
from headway.cli.training_run.pods import submit
from headway.cli.training_run.runs import find_run
from headway.core.codec import to_document
from headway.core.training_job import DataSettings, TrainingJob
from headway.core.training_run import PROGRESS_FILE, StepReport, TrainingNews
from tests.cluster.control_plane import ControlPlane

NAMESPACE, CLAIM = "learning", "training"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
JOB = TrainingJob(model="mine:small", data=DataSettings(synthetic=True), batch=16, steps=4)
VOLUME: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}


@pytest.fixture
def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlPlane]:
    """With a node, a namespace that enforces the restricted standard and a claim; kubectl is on the PATH."""
    (tmp_path / "plane").mkdir()
    with ControlPlane(tmp_path / "plane") as running:
        running.add_node("machine")
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        running.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
        volume = {"capacity": {"storage": "1Gi"}, "nfs": {"server": "storage", "path": "/"}, **VOLUME}
        running.create("/api/v1/persistentvolumes", {"metadata": {"name": CLAIM}, "spec": volume})
        claim = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": CLAIM, **VOLUME}
        claims = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
        running.create(claims, {"metadata": {"name": CLAIM}, "spec": claim})
        program = tmp_path / "kubectl"
        program.write_text(f'#!/bin/sh\nexec {os.environ["HEADWAY_KUBERNETES"]} kubectl "$@"\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setenv("KUBECONFIG", str(running.kubeconfig))
        monkeypatch.setenv("HOME", str(tmp_path))
        yield running


def test_a_run_in_pods_is_followed_stopped_and_begun_again(plane: ControlPlane, tmp_path: Path) -> None:
    directory = tmp_path / "training/train-20261127T080000-0a1b2c"
    directory.mkdir(parents=True)
    (directory / "job.json").write_text(json.dumps(to_document(JOB)))
    pods = PodOptions(claim=CLAIM, image="headway-worker:1", cores=1, user=1000, group=1000)
    manifest = run_manifest(directory, JOB, peak_bytes=1 << 20, state_dir=tmp_path, pods=pods)

    submit(directory, manifest, namespace=NAMESPACE)
    _wait(lambda: len(_running(plane)) == JOB.workers, "its pods run")
    assert "mine:small, running" in _train("status", tmp_path)
    assert "goes on with it" in _train("stop", tmp_path)
    _wait(lambda: find_run(None, tmp_path).state == "stopped", "it is stopped")
    assert not _running(plane)

    assert "is given to the cluster" in _train("resume", tmp_path)
    _wait(lambda: len(_running(plane)) == JOB.workers, "its pods run again")
    _fail(plane, _running(plane)[0], status=2)
    _wait(lambda: find_run(None, tmp_path).state == "failed", "its error would come again")
    assert "PodFailurePolicy" in _train("status", tmp_path)

    _train("resume", tmp_path)
    _wait(lambda: len(_running(plane)) == JOB.workers, "its pods run again")
    report = StepReport(step=JOB.steps, loss=1.0, grad_norm=1.0, seconds=1.0)
    (directory / PROGRESS_FILE).write_text(json.dumps(to_document(TrainingNews(step=report))) + "\n")
    assert json.loads(_train("list", tmp_path, "--json"))[0]["state"] == "done", "whatever the cluster has of it"


def _train(command: str, state_dir: Path, *options: str) -> str:
    done = CliRunner().invoke(app, [command, "--state-dir", str(state_dir), *options])
    assert done.exit_code == 0, done.output
    return done.output


def _running(plane: ControlPlane) -> list[dict[str, Any]]:
    pods = plane.get(PODS)["items"]
    return [pod for pod in pods if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]]


def _fail(plane: ControlPlane, pod: dict[str, Any], *, status: int) -> None:
    """As a kubelet tells of a container that has ended so."""
    ended = {"name": "rank", "state": {"terminated": {"exitCode": status, "reason": "Error"}}}
    known = {"image": "headway-worker:1", "imageID": "", "ready": False, "restartCount": 0}
    patch = {"status": {"phase": "Failed", "containerStatuses": [{**known, **ended}]}}
    path = f"{PODS}/{pod['metadata']['name']}/status"
    assert plane.call("PATCH", path, patch, kind="application/merge-patch+json").is_success


def _wait(is_so: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.2)
