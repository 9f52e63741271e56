"""A run as a Kubernetes Job, each of whose pods runs one rank."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headway.core.errors import InvalidArgumentError
from headway.core.training_job import CUDA, TrainingJob

_PORT = 29500
_RUNTIME_BYTES = 1 << 30  # of torch, beside what is certified
_STOP_S = 30
_GPU = "nvidia.com/gpu"
_FAILS_AGAIN, _WAS_ASKED = 2, 3  # statuses of headway.train.pod


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOptions:
    """Attributes:
    claim: the PersistentVolumeClaim that all pods mount at the state directory.
    cores: of a pod.
    user, group: as whom pods read and write the run's files.
    """

    claim: str
    image: str
    cores: int
    user: int
    group: int


def check_shared(job: TrainingJob, state_dir: Path | None) -> None:
    """InvalidArgumentError where pods would not find the run or its data in what they mount."""
    if state_dir is None:
        raise InvalidArgumentError(
            "Pods find a run on their claim only.", hint="Give --state-dir, where the claim is mounted here.",
            field="state_dir",
        )  # fmt: skip
    if job.ray:
        raise InvalidArgumentError(
            "A run is in pods or on a Ray cluster.", hint="Leave out --manifest and --kubernetes, or ray.", field="ray"
        )
    for path in _files(job):
        if not path.is_relative_to(state_dir.resolve()):
            raise InvalidArgumentError(
                f"Pods do not find {path}: it is not below {state_dir}.",
                hint="Copy it there, and name it there in the job.",
                field="data",
            )


def _files(job: TrainingJob) -> Iterator[Path]:
    """Those that its data is in."""
    for data in (job.data, *(() if job.validation is None else (job.validation.data,))):
        yield from (Path(path) for path in (data.tensors, data.tokens) if path)


def run_manifest(directory: Path, job: TrainingJob, *, peak_bytes: int, state_dir: Path, pods: PodOptions) -> str:
    """A headless Service, by which pods find the first one, and the Job, which starts each again as often as the
    training job says, unless its error would come again.

    Args:
        directory: of the run, below the state directory.
        peak_bytes: that a rank needs, as certified.
    """
    name = directory.name.lower()
    selector = {"headway.dev/run": name}
    meta = {"name": name, "labels": selector}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector,
            "ports": [{"name": "rendezvous", "port": _PORT}],
        },
    }
    spec = {
        "completionMode": "Indexed",
        "completions": job.workers,
        "parallelism": job.workers,
        "backoffLimitPerIndex": job.restarts,
        "maxFailedIndexes": 0,
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                _rule("Ignore", _WAS_ASKED),
                _rule("FailJob", _FAILS_AGAIN),
            ]
        },
        "template": {"metadata": {"labels": selector}, "spec": _pod(name, directory, job, peak_bytes, state_dir, pods)},
    }
    document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
    return "---\n".join(_text(each) for each in (service, document))


def _rule(action: str, status: int) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"containerName": "rank", "operator": "In", "values": [status]}}


def _pod(
    name: str, directory: Path, job: TrainingJob, peak_bytes: int, state_dir: Path, pods: PodOptions
) -> dict[str, Any]:
    limits = {"cpu": str(pods.cores)} | ({_GPU: "1"} if job.device == CUDA else {})
    memory = f"{-(-(peak_bytes + _RUNTIME_BYTES) >> 20)}Mi"
    rank = {
        "name": "rank",
        "image": pods.image,
        "command": ["python", "-m", "headway.train.pod"],
        "args": [str(directory), f"{name}-0.{name}", str(_PORT), str(pods.cores)],
        "resources": {"requests": {"cpu": str(pods.cores), "memory": memory}, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "state", "mountPath": str(state_dir.resolve())},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    return {
        "subdomain": name,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": int(job.timeout_s) + _STOP_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": pods.user != 0,
            "runAsUser": pods.user,
            "runAsGroup": pods.group,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [rank],
        "volumes": [
            {"name": "state", "persistentVolumeClaim": {"claimName": pods.claim}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def _text(document: dict[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Plain, sort_keys=False)


class _Plain(yaml.SafeDumper):
    """Writes what is there twice twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True
