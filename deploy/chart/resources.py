"""Definitions of custom resources, of the same shapes as the chart's values. `python -m deploy.chart` writes them."""

from collections.abc import Sequence
from typing import Any

from deploy.chart.kubernetes import DEFINITIONS
from deploy.chart.model import MODEL
from deploy.chart.pool import POOL
from deploy.chart.shape import Schema, choice, fields, flag, listing, number, text, whole

GROUP = "serving.headway.dev"
VERSION = "v1alpha1"

_MOST_PRIORITY = 1_000_000_000
"""As in Kubernetes' own PriorityClass."""

_IS_ALONE = (
    "("
    + " && ".join(f"(!has(self.parallelism.{axis}) || self.parallelism.{axis} == 1)" for axis in ("tp", "pp", "cp"))
    + ")"
)
"""CEL for a layout of lone workers."""

_CONDITION = fields(
    "Something that is so or not.",
    "type",
    "status",
    "reason",
    "message",
    "lastTransitionTime",
    of={
        "type": text("What is so or not."),
        "status": text("True or False."),
        "reason": text("Why, in one word."),
        "message": text("Why, for people."),
        "observedGeneration": whole("The generation of the resource that it is about."),
        "lastTransitionTime": text("Since when."),
    },
)

_STATUS = fields(
    "What is planned for the model, and how much of that is loaded.",
    of={
        "observedGeneration": whole("The generation of the resource that it is about."),
        "planId": text("The plan that gave the model its groups; later ones leave those as they are."),
        "groups": text("How many groups of workers serve it, of how many that are planned."),
        "layout": text("How a group shares it."),
        "proposal": fields(
            "A plan for it that waits for approval.",
            "planId",
            of={
                "planId": text("The plan's id."),
                "changes": listing("What it loads and drains.", text("A group's change.")),
            },
        ),
        "fetched": fields(
            "What was fetched of its uri, once all of it is there.",
            of={
                "version": text("The commit, or the digest of the manifest, that its revision was then."),
                "sha256": text("The digest of its files: given as sha256, it keeps others from being served."),
                "bytes": whole("Of its files."),
            },
        ),
        "predicted": fields(
            "Latencies that the plan predicts, in milliseconds, of the slowest group.",
            of={
                "ttftMs": whole("To the first token, on an idle group."),
                "tpotMs": whole("For each token after it, under load."),
            },
        ),
        "conditions": listing("What is so and what is not.", _CONDITION)
        | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    },
)

_POOL_STATUS = fields(
    "How many cells there are, and why not as many as wanted.",
    of={
        "observedGeneration": whole("The generation of the resource that it is about."),
        "replicas": whole("Cells that there are, but for those that end."),
        "readyReplicas": whole("Of these, those that have loaded what the plan gives them."),
        "updatedReplicas": whole("Of these, those that the pool would make as they are."),
        "wantedReplicas": whole("Cells that there are to be."),
        "selector": text("Labels of its cells."),
        "conditions": listing("What is so and what is not.", _CONDITION)
        | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    },
)


_SCALING = fields(
    "Has the controller decide how many cells there are to be, by what is asked of the models.",
    "max",
    of={
        "min": whole("At least; one where it is left out.", least=1),
        "max": whole("At most.", least=1),
        "targetAttainment": number("The least share of requests that is to meet its SLO; 0.99.", above=0)
        | {"maximum": 1},
        "targetLoad": number("The most requests at once, of those that the plan has room for; 0.8.", above=0)
        | {"maximum": 1},
        "windowSeconds": whole("Over which attainment is measured, and between two changes; 60.", least=15),
        "cooldownSeconds": whole("For which less must have been enough before a cell goes; 300.", least=15),
        "dryRun": flag("Whether decisions are only told, in the condition Scaling."),
    },
) | {
    "x-kubernetes-validations": [
        {"rule": "!has(self.min) || self.min <= self.max", "message": "scaling.min is above scaling.max"}
    ]
}


def _spec() -> Schema:
    """A model of the values, by its resource's name."""
    shapes = {name: shape for name, shape in MODEL["properties"].items() if name != "name"}
    shapes["servedName"] = text("The name that clients ask for; the resource's where it is left out.", least=1)
    shapes["priority"] = whole(
        "Where not all can be served, those with higher priorities are, in place of others where it takes that; 0 "
        "where it is left out.",
        least=-_MOST_PRIORITY,
        most=_MOST_PRIORITY,
    )
    shapes["apply"] = choice(
        "Whether a change of it is applied at once, or when its plan is approved: by the annotation "
        f"{GROUP}/apply with the plan's id. Auto where it is left out.",
        "Auto",
        "Manual",
    )
    shapes["replicas"] = shapes["replicas"] | {
        "x-kubernetes-validations": [
            {
                "rule": "!has(self.min) || !has(self.max) || self.min <= self.max",
                "message": "replicas.min is above replicas.max",
            },
            _rule(
                "!has(self.idleSeconds) || (has(self.min) && self.min == 0)",
                "replicas.idleSeconds says when a model with min: 0 is unloaded",
            ),
        ]
    }
    shapes["uri"] = text(
        "Where its files are, instead of path: pvc://CLAIM/DIRECTORY, of modelStorage.existingClaim. Or where they are "
        "fetched from, with modelStorage.fetch: hf://ORGANISATION/NAME, s3://BUCKET/PREFIX or "
        "oci://REGISTRY/REPOSITORY:TAG."
    )
    shapes["revision"] = text(
        "Of what is fetched: a branch, tag or commit of hf://, main where it is left out; a tag or digest of oci://.",
        least=1,
    )
    shapes["sha256"] = text(
        "The digest of its files, or it is not served: LC_ALL=C sha256sum -- * | sha256sum in its directory.",
        pattern="^[0-9a-f]{64}$",
    )
    return fields("A model to serve.", of=shapes) | {
        "x-kubernetes-validations": [
            _rule("has(self.path) != has(self.uri)", "give one of path and uri"),
            _rule(
                f"!has(self.roles) || !has(self.parallelism) || {_IS_ALONE}",
                "roles and parallelism contradict each other: blocks move between lone workers only",
            ),
            _rule(
                "!has(self.roles) || !has(self.replicas)",
                "roles and replicas both say how many workers serve it: leave one out",
            ),
            _rule(
                "!has(self.engine) || self.engine == 'headway' || (!has(self.roles) && "
                f"(!has(self.parallelism) || {_IS_ALONE}))",
                "other engines serve on lone workers that do everything: leave parallelism and roles out",
            ),
            _rule(
                "!has(self.engine) || self.engine != 'vllm-server' || !has(self.replicas) || !has(self.replicas.min) "
                "|| self.replicas.min > 0",
                "a vllm-server has its model loaded all the time: replicas.min is 1 at least",
            ),
            _rule(
                "!has(self.uri) || self.uri.matches('^(pvc|hf|s3|oci)://.')",
                "uri begins with pvc://, hf://, s3:// or oci://",
            ),
            _rule(
                "!has(self.revision) || (has(self.uri) && self.uri.matches('^(hf|oci)://'))",
                "revision is of a uri with hf:// or oci://",
            ),
        ]
    }


def _column(name: str, path: str, kind: str = "string") -> dict[str, str]:
    return {"name": name, "type": kind, "jsonPath": path}


def model_deployments() -> dict[str, Any]:
    """The definition of ModelDeployment."""
    return _definition(
        "ModelDeployment",
        "A model that Headway serves.",
        short="md",
        spec=_spec(),
        status=_STATUS,
        subresources={"status": {}},
        columns=(
            _column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
            _column("Degraded", '.status.conditions[?(@.type=="Degraded")].status'),
            _column("Groups", ".status.groups"),
            _column("Layout", ".status.layout"),
            _column("Proposal", ".status.proposal.planId"),
            _column("TTFT ms", ".status.predicted.ttftMs", "integer"),
            _column("TPOT ms", ".status.predicted.tpotMs", "integer"),
            _column("Age", ".metadata.creationTimestamp", "date"),
        ),
    )


def worker_pools() -> dict[str, Any]:
    """The definition of WorkerPool."""
    return _definition(
        "WorkerPool",
        "Cells that are alike: pods of one node each, with a worker for every GPU of the pod.",
        short="wp",
        spec=_pool(),
        status=_POOL_STATUS,
        subresources={
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        columns=(
            _column("Wanted", ".status.wantedReplicas", "integer"),
            _column("Cells", ".status.replicas", "integer"),
            _column("Ready", ".status.readyReplicas", "integer"),
            _column("GPUs", ".spec.gpusPerCell", "integer"),
            _column("Scaling", '.status.conditions[?(@.type=="Scaling")].reason'),
            _column("Degraded", '.status.conditions[?(@.type=="Degraded")].status'),
            _column("Age", ".metadata.creationTimestamp", "date"),
        ),
    )


def _pool() -> Schema:
    """A pool of the values, by its resource's name."""
    shapes = {name: shape for name, shape in POOL["properties"].items() if name not in ("name", "cells")}
    shapes["replicas"] = whole("How many cells there are to be; one where it is left out, and scaling too.")
    shapes["scaling"] = _SCALING
    return fields("Cells that are alike.", of=shapes) | {
        "x-kubernetes-validations": [
            _rule(
                "!has(self.replicas) || !has(self.scaling)",
                "replicas and scaling both say how many cells there are to be: leave one out",
            ),
            _rule(
                "!has(self.emulate) || !has(self.gpusPerCell) || self.gpusPerCell == 0",
                "a pool that emulates a device has no GPUs: give workersPerCell instead of gpusPerCell",
            ),
            _rule(
                "!has(self.workersPerCell) || !has(self.gpusPerCell) || self.gpusPerCell == 0",
                "a cell has a worker for each GPU: leave workersPerCell out",
            ),
            _rule(
                "!has(self.gpusPerWorker) || self.gpusPerWorker == 1 || (has(self.engine) && self.engine == 'vllm' && "
                "has(self.gpusPerCell) && self.gpusPerCell > 0 && self.gpusPerCell % self.gpusPerWorker == 0)",
                "gpusPerWorker is for the engine vllm, and gpusPerCell is a multiple of it",
            ),
            _rule(
                "!has(self.engine) || self.engine != 'vllm' || (has(self.image) && !has(self.emulate))",
                "a pool that computes with vllm has an image with it, and no device to emulate",
            ),
            _rule(
                "has(self.engine) && self.engine == 'vllm-server' ? has(self.engineUrl) && has(self.engineModel) : "
                "!has(self.engineUrl) && !has(self.engineModel) && !has(self.engineEvents) && "
                "!has(self.engineKeySecret)",
                "engineUrl and engineModel belong to a pool whose engine is vllm-server, and to each such",
            ),
            _rule(
                "!has(self.engine) || self.engine != 'vllm-server' || !(has(self.emulate) || has(self.scaling) || "
                "has(self.gpusPerCell) && self.gpusPerCell > 0 || has(self.workersPerCell) && self.workersPerCell > 1 "
                "|| has(self.replicas) && self.replicas > 1)",
                "a pool that stands in for a server has one cell with one worker, no GPU and no scaling",
            ),
        ]
    }


def _rule(rule: str, message: str) -> dict[str, str]:
    return {"rule": rule, "message": message}


def _definition(
    kind: str,
    description: str,
    *,
    short: str,
    spec: Schema,
    status: Schema,
    subresources: dict[str, Any],
    columns: Sequence[dict[str, str]],
) -> dict[str, Any]:
    singular = kind.lower()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{singular}s.{GROUP}", "annotations": {"helm.sh/resource-policy": "keep"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": f"{singular}s",
                "singular": singular,
                "shortNames": [short],
                "categories": ["headway"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": subresources,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": description,
                            "required": ["spec"],
                            "properties": {"spec": structural(spec), "status": structural(status)},
                        }
                    },
                    "additionalPrinterColumns": list(columns),
                }
            ],
        },
    }


def structural(schema: Schema) -> Schema:
    """A shape as definitions of resources have it: with OpenAPI 3.0's bounds, nothing by reference, and closed without
    saying so."""
    if "allOf" in schema:
        name = str(schema["allOf"][0]["$ref"]).rpartition("/")[2]
        return structural(DEFINITIONS[name]) | {"description": schema["description"]}
    if isinstance(schema.get("type"), list):  # a quantity
        return {"x-kubernetes-int-or-string": True, "description": schema["description"]}
    converted: Schema = {}
    for key, value in schema.items():
        if key == "exclusiveMinimum":
            converted |= {"minimum": value, "exclusiveMinimum": True}
        elif key == "properties":
            converted[key] = {name: structural(shape) for name, shape in value.items()}
        elif key == "items" or (key == "additionalProperties" and value is not False):
            converted[key] = structural(value)
        elif key != "additionalProperties":
            converted[key] = value
    return converted
