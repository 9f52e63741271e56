"""The job that fetches a model's files to the volume: what all of them have, and what its model says."""

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from headway.controller.kubernetes.api import ResourceKind
from headway.controller.kubernetes.model_resource import MODEL_DEPLOYMENT, ModelResource
from headway.controller.kubernetes.template import container_of, reading_template
from headway.core.model_uri import ModelUri

JOBS = ResourceKind(kind="Job", plural="jobs", group="batch", version="v1")
FETCH_LABEL = f"{MODEL_DEPLOYMENT.group}/fetch"

_CONTAINER = "fetch"
_HASH_CHARS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFetch:
    """Attributes:
    uri: where the files are.
    sha256: the digest that they have to have; empty for any.
    """

    uri: ModelUri
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTemplate:
    """What all jobs have in common.

    Attributes:
        job: metadata and spec of a job, with a container `fetch` whose command is `headway fetch`. The name of its
            metadata begins the name of each.
    """

    job: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a YAML file; InvalidArgumentError where it is none, or has other fields."""
        has = "the metadata and spec of a job, with a container called fetch"
        with reading_template(path, of="jobs", has=has, field="fetch_template") as job:
            container_of(job["spec"]["template"]["spec"], _CONTAINER)
            return cls(job={"metadata": job["metadata"], "spec": job["spec"]})

    def name_of(self, fetch: ModelFetch) -> str:
        """A job's name, the same for all who ask for the same. Another template is another job: one that failed for
        want of credentials need not be forgotten first."""
        told = f"{fetch.uri} {fetch.sha256} {json.dumps(self.job['spec'], sort_keys=True)}"
        return f"{self.job['metadata']['name']}-{hashlib.sha256(told.encode()).hexdigest()[:_HASH_CHARS]}"


def fetch_job(
    fetch: ModelFetch, template: FetchTemplate, *, to: Path, report: Path, owners: Sequence[ModelResource]
) -> dict[str, Any]:
    """The job's whole manifest. It is deleted with the last of its owners.

    Args:
        to, report: the directory and the file of the report, where the volume is mounted in every pod.
        owners: whose model it is.
    """
    job = copy.deepcopy(dict(template.job))
    container = container_of(job["spec"]["template"]["spec"], _CONTAINER)
    digest = ["--sha256", fetch.sha256] if fetch.sha256 else []
    container["args"] = [*container.get("args", []), str(fetch.uri), "--to", str(to), "--report", str(report), *digest]
    metadata = {**job["metadata"], "name": template.name_of(fetch), "ownerReferences": [*map(_owner, owners)]}
    return {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": metadata, "spec": job["spec"]}


def ending_of(job: Mapping[str, Any]) -> tuple[bool, str] | None:
    """Whether a job did its work, and what Kubernetes says of it; None where it has not ended."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            return condition["type"] == "Complete", str(condition.get("message", ""))
    return None


def _owner(resource: ModelResource) -> dict[str, Any]:
    return {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "name": resource.name,
        "uid": resource.uid,
        "blockOwnerDeletion": False,
    }
