"""Runs in pods of a Kubernetes cluster, through kubectl: with the rights of whoever calls it, in their cluster."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.core.codec import from_document, to_document
from headway.core.errors import FailedPreconditionError, HeadwayError, UnavailableError

_KUBECTL, _MANAGER = "kubectl", "headway"
_TIMEOUT_S = 60.0
_WHERE_FILE, _MANIFEST_FILE = "kubernetes.json", "kubernetes.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where a run's Job is.

    Attributes:
        context: of the kubeconfig; empty for what kubectl goes by without one.
        namespace: empty for the context's own.
    """

    job: str
    context: str = ""
    namespace: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        given = (("--context", self.context), ("--namespace", self.namespace))
        return tuple(f"{name}={value}" for name, value in given if value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsState:
    """How a run in pods is.

    Attributes:
        state: 'running' as long as there is a Job, 'stopped', 'failed', or 'unknown' where the cluster does not say.
        message: why it failed or is unknown.
    """

    state: str
    message: str = ""


def submit(directory: Path, manifest: str, *, namespace: str) -> None:
    """Hands a run's manifest to the cluster, and keeps in the run's directory where that is.

    Raises:
        FailedPreconditionError: there is no kubectl.
        UnavailableError: the cluster refuses it, or does not answer.
    """
    where = Whereabouts(job=directory.name.lower(), context=_current_context(), namespace=namespace)
    (directory / _MANIFEST_FILE).write_text(manifest)
    (directory / _WHERE_FILE).write_text(json.dumps(to_document(where)))
    _apply(directory, where)


def submit_again(directory: Path) -> None:
    """Hands the manifest of a run that was stopped or has failed to its cluster once more; raises as `submit`."""
    where = _where(directory)
    assert where is not None, "it was in pods"
    _delete(directory, where, waits=True)  # a Job that has failed does not begin again
    _apply(directory, where)


def is_in_pods(directory: Path) -> bool:
    return _where(directory) is not None


def pods_state(directory: Path) -> PodsState:
    """How the Job of a run in pods is."""
    where = _where(directory)
    assert where is not None, "it is in pods"
    try:
        found = _kubectl("get", "job", where.job, "--ignore-not-found", "--output=json", *where.options)
    except HeadwayError as error:
        return PodsState(state="unknown", message=error.message)
    return state_of_job(json.loads(found)) if found.strip() else PodsState(state="stopped")


def state_of_job(job: dict[str, Any]) -> PodsState:
    """Args:
    job: as the API server has it.
    """
    conditions = {
        each["type"]: each for each in job.get("status", {}).get("conditions", ()) if each["status"] == "True"
    }
    failed = conditions.get("Failed") or conditions.get("FailureTarget")
    if failed is not None:
        return PodsState(state="failed", message=f"{failed.get('reason', '')}: {failed.get('message', '')}")
    return PodsState(state="stopped" if "Complete" in conditions or "Suspended" in conditions else "running")


def end_pods(directory: Path) -> None:
    """Has the Job deleted, which is there as long as its pods are: these end behind their step, with a checkpoint.
    Raises as `submit`."""
    where = _where(directory)
    assert where is not None, "it is in pods"
    _delete(directory, where, waits=False)


def _where(directory: Path) -> Whereabouts | None:
    path = directory / _WHERE_FILE
    return from_document(Whereabouts, json.loads(path.read_text())) if path.is_file() else None


def _apply(directory: Path, where: Whereabouts) -> None:
    manifest = str(directory / _MANIFEST_FILE)
    _kubectl("apply", "--server-side", f"--field-manager={_MANAGER}", "--filename", manifest, *where.options)


def _delete(directory: Path, where: Whereabouts, *, waits: bool) -> None:
    manifest = str(directory / _MANIFEST_FILE)
    how = ("--ignore-not-found", "--cascade=foreground", f"--wait={str(waits).lower()}")
    _kubectl("delete", *how, "--filename", manifest, *where.options)


def _current_context() -> str:
    """The kubeconfig's own, which later commands go by whatever it is then; in a pod there is none."""
    try:
        return _kubectl("config", "current-context").strip()
    except UnavailableError:
        return ""


def _kubectl(*arguments: str) -> str:
    """What it prints."""
    try:
        done = subprocess.run((_KUBECTL, *arguments), capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except FileNotFoundError:
        raise FailedPreconditionError(
            "There is no kubectl on the PATH.",
            hint="Install it, or write the Job with --manifest and apply that elsewhere.",
            field="kubernetes",
        ) from None
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"kubectl {arguments[0]} gave no answer within {_TIMEOUT_S:.0f} s.") from None
    if done.returncode:
        raise UnavailableError(
            f"kubectl {arguments[0]}: {done.stderr.strip() or f'status {done.returncode}'}",
            hint="`kubectl auth can-i create jobs` tells whether you may.",
        )
    return done.stdout
