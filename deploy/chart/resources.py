"""Definitions of custom resources, of the same shapes as the chart's values. `python -m deploy.chart` writes them."""

from typing import Any

from deploy.chart.shape import Schema, choice, fields, listing, text, whole
from deploy.chart.values import MODEL

GROUP = "serving.headway.dev"
VERSION = "v1alpha1"

_MOST_PRIORITY = 1_000_000_000
"""As in Kubernetes' own PriorityClass."""

_CONDITION = fields(
    "Something that is so or not.",
    "type",
    "status",
    "reason",
    "message",
    "lastTransitionTime",
    of={
        "type": text("Planned, Loaded, Ready or Degraded."),
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
        "planId": text("The plan that is desired."),
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
            }
        ]
    }
    return fields("A model to serve.", "path", of=shapes)


def _column(name: str, path: str, kind: str = "string") -> dict[str, str]:
    return {"name": name, "type": kind, "jsonPath": path}


def model_deployments() -> dict[str, Any]:
    """The definition of ModelDeployment."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"modeldeployments.{GROUP}", "annotations": {"helm.sh/resource-policy": "keep"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": "ModelDeployment",
                "listKind": "ModelDeploymentList",
                "plural": "modeldeployments",
                "singular": "modeldeployment",
                "shortNames": ["md"],
                "categories": ["headway"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": "A model that Headway serves.",
                            "required": ["spec"],
                            "properties": {"spec": structural(_spec()), "status": structural(_STATUS)},
                        }
                    },
                    "additionalPrinterColumns": [
                        _column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
                        _column("Degraded", '.status.conditions[?(@.type=="Degraded")].status'),
                        _column("Groups", ".status.groups"),
                        _column("Layout", ".status.layout"),
                        _column("Proposal", ".status.proposal.planId"),
                        _column("TTFT ms", ".status.predicted.ttftMs", "integer"),
                        _column("TPOT ms", ".status.predicted.tpotMs", "integer"),
                        _column("Age", ".metadata.creationTimestamp", "date"),
                    ],
                }
            ],
        },
    }


def structural(schema: Schema) -> Schema:
    """A shape as definitions of resources have it: with OpenAPI 3.0's bounds, and closed without saying so."""
    converted: Schema = {}
    for key, value in schema.items():
        if key == "exclusiveMinimum":
            converted |= {"minimum": value, "exclusiveMinimum": True}
        elif key == "properties":
            converted[key] = {name: structural(shape) for name, shape in value.items()}
        elif key == "items":
            converted[key] = structural(value)
        elif key != "additionalProperties":
            converted[key] = value
    return converted
