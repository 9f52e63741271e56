"""The pod of a cell: what all cells of the release have, and what its pool says. Pure but for reading the template."""

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from headway.controller.kubernetes.api import GROUP, PODS
from headway.controller.kubernetes.cells import Cell
from headway.controller.kubernetes.pool_resource import POOL_LABEL, PoolResource
from headway.controller.kubernetes.template import container_of, reading_template
from headway.core.engine_server import API_KEY

_TEMPLATE = f"{GROUP}/template"
_VERSION_LABEL = "app.kubernetes.io/version"
_FIRST_METRICS_PORT = 9200
_CONTAINER = "cell"
_DRAIN_S = 60
_AFTER_DRAIN_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTemplate:
    """What the cells of all pools have in common.

    Attributes:
        pod: metadata and spec of a pod whose container `cell` computes with real devices.
        emulated_image: of cells that only take a device's time.
    """

    pod: Mapping[str, Any]
    emulated_image: str

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a YAML file; InvalidArgumentError where it is none, or has other fields."""
        has = "`pod`, with a container called cell, and `emulated_image`"
        with reading_template(path, of="cells", has=has, field="cell_template") as document:
            container_of(document["pod"]["spec"], _CONTAINER)
            return cls(**document)


def cell_pod(pool: PoolResource, template: CellTemplate, *, name: str) -> dict[str, Any]:
    """The pod's whole manifest. It is deleted with its pool."""
    pod = copy.deepcopy(dict(template.pod))
    spec: dict[str, Any] = pod["spec"]
    container = container_of(spec, _CONTAINER)
    container["image"] = _image(pool, template, container["image"])
    container["args"] = [*container.get("args", []), *_arguments(pool)]
    container["ports"] = [
        *container.get("ports", []),
        *(
            {"name": f"metrics-{index}", "containerPort": _FIRST_METRICS_PORT + index}
            for index in range(pool.workers_per_cell)
        ),
    ]
    if secret := pool.spec.get("engineKeySecret"):
        key = {"name": API_KEY, "valueFrom": {"secretKeyRef": {"name": secret, "key": "api-key"}}}
        container["env"] = [*container.get("env", []), key]
    if resources := _resources(pool):
        container["resources"] = resources
    for field in ("nodeSelector", "tolerations", "affinity", "runtimeClassName", "priorityClassName"):
        if pool.spec.get(field):
            spec[field] = pool.spec[field]
    if claims := pool.spec.get("resourceClaims"):
        spec["resourceClaims"] = claims
    spec["terminationGracePeriodSeconds"] = _drain_s(pool) + _AFTER_DRAIN_S
    spec["volumes"] = [*spec.get("volumes", []), _shared_memory(pool)]
    container["volumeMounts"] = [*container.get("volumeMounts", []), {"name": "shm", "mountPath": "/dev/shm"}]
    metadata = pod.get("metadata", {})
    labels = metadata.get("labels", {}) | {POOL_LABEL: pool.name}
    whole = {"metadata": metadata | {"labels": labels}, "spec": spec}
    metadata = whole["metadata"] | {
        "name": name,
        "annotations": metadata.get("annotations", {}) | {_TEMPLATE: _hash(whole)},
        "ownerReferences": [pool.owner_reference],
    }
    return {"apiVersion": PODS.api_version, "kind": PODS.kind, "metadata": metadata, "spec": spec}


def cell_of(pod: Mapping[str, Any], *, wanted: Mapping[str, Any]) -> Cell:
    """What a pod is, beside the manifest that its pool would make now."""
    metadata, status = pod["metadata"], pod.get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    made_as = metadata.get("annotations", {}).get(_TEMPLATE)
    return Cell(
        name=metadata["name"],
        uid=metadata["uid"],
        is_ready=conditions.get("Ready", {}).get("status") == "True",
        is_ending="deletionTimestamp" in metadata,
        has_ended=status.get("phase") in ("Failed", "Succeeded"),
        is_outdated=made_as != wanted["metadata"]["annotations"][_TEMPLATE],
        trouble=_trouble(status, conditions),
    )


def is_cell_of(pod: Mapping[str, Any], pool: PoolResource) -> bool:
    """Whether the pool owns the pod; the label alone could be anybody's."""
    return any(owner["uid"] == pool.uid for owner in pod["metadata"].get("ownerReferences", []))


def _trouble(status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> str:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return str(scheduled.get("message") or scheduled.get("reason") or "it is on no node")
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason", "ContainerCreating") not in ("ContainerCreating", "PodInitializing"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return ""


def _image(pool: PoolResource, template: CellTemplate, real: str) -> str:
    if (own := pool.spec.get("image")) is None:
        return template.emulated_image if pool.is_emulated else real
    repository, digest = own["repository"], own.get("digest")
    if digest:
        return f"{repository}@{digest}"
    told = real.partition("@")[0].rpartition("/")[2].partition(":")[2]  # a colon further left is before a port
    return f"{repository}:{own.get('tag') or told or template.pod['metadata']['labels'][_VERSION_LABEL]}"


def _arguments(pool: PoolResource) -> list[str]:
    flags = {
        "--workers": pool.workers_per_cell,
        "--pool": pool.name,
        "--device": "cuda" if pool.num_gpus else "cpu",
        "--drain-s": _drain_s(pool),
        "--emulate": pool.spec.get("emulate"),
        "--engine": pool.spec.get("engine"),
        "--num-devices": pool.gpus_per_worker if pool.gpus_per_worker > 1 else None,
        "--engine-url": pool.spec.get("engineUrl"),
        "--engine-model": pool.spec.get("engineModel"),
        "--engine-events": pool.spec.get("engineEvents"),
        "--num-threads": pool.spec.get("threadsPerWorker"),
        "--memory-bytes": pool.spec.get("memoryBytesPerWorker"),
    }
    return [part for flag, value in flags.items() if value not in (None, "") for part in (flag, str(value))]


def _resources(pool: PoolResource) -> dict[str, Any]:
    resources: dict[str, Any] = copy.deepcopy(dict(pool.spec.get("resources", {})))
    if claims := pool.spec.get("resourceClaims"):
        resources["claims"] = [{"name": claim["name"]} for claim in claims]
    elif pool.num_gpus:
        gpu = pool.spec.get("gpuResource", "nvidia.com/gpu")
        resources["limits"] = {**resources.get("limits", {}), gpu: pool.num_gpus}
    return resources


def _drain_s(pool: PoolResource) -> int:
    return int(pool.spec.get("drainSeconds", _DRAIN_S))


def _shared_memory(pool: PoolResource) -> dict[str, Any]:
    """Through which the ranks of a group talk."""
    return {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": pool.spec.get("sharedMemory", "1Gi")}}


def _hash(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]
