"""Parts of Kubernetes objects that values pass on as they are, as far as a pod of ours can use them.

Source: the API reference of Kubernetes 1.36 (PodSpec, ResourceRequirements, EnvVar, Volume).
"""

from typing import Any

from deploy.chart.shape import Schema, choice, fields, flag, listing, named, reference, text, whole

_QUANTITY: Schema = {"type": ["string", "integer", "number"], "description": "A quantity, such as 500m or 8Gi."}


def _key_in(what: str) -> Schema:
    return fields(
        f"A key of a {what}.",
        "name",
        "key",
        of={
            "name": text(f"The {what}'s name."),
            "key": text("The key in it."),
            "optional": flag("Whether it may be missing."),
        },
    )


def _items() -> Schema:
    path = fields(
        "A key and the file it becomes.", "key", "path", of={"key": text("The key."), "path": text("The file.")}
    )
    return listing("Which keys become which files; all where it is empty.", path)


def _match_expressions(operators: tuple[str, ...]) -> Schema:
    return listing(
        "Requirements that must all hold.",
        fields(
            "A requirement on a label.",
            "key",
            "operator",
            of={
                "key": text("The label."),
                "operator": choice("How it is compared.", *operators),
                "values": listing("With what.", text("A value.")),
            },
        ),
    )


_LABEL_SELECTOR = fields(
    "Which objects, by their labels.",
    of={
        "matchLabels": named("Labels that they have.", text("A value.")),
        "matchExpressions": _match_expressions(("In", "NotIn", "Exists", "DoesNotExist")),
    },
)
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_NODE_TERM = fields(
    "Which nodes.",
    of={
        "matchExpressions": _match_expressions(_NODE_OPERATORS),
        "matchFields": _match_expressions(_NODE_OPERATORS),
    },
)
_POD_TERM = fields(
    "Near which pods.",
    "topologyKey",
    of={
        "labelSelector": reference("labelSelector", "Which pods."),
        "namespaceSelector": reference("labelSelector", "In which namespaces, by label."),
        "namespaces": listing("In which namespaces, by name.", text("A namespace.")),
        "topologyKey": text("The node label that says what near is."),
    },
)


def _weighted(name: str, term: str) -> Schema:
    return listing(
        "Wishes.",
        fields(
            "A wish and its weight.",
            "weight",
            name,
            of={"weight": whole("From 1 to 100.", least=1, most=100), name: reference(term, "The wish.")},
        ),
    )


def _pod_affinity(description: str) -> Schema:
    return fields(
        description,
        of={
            "requiredDuringSchedulingIgnoredDuringExecution": listing("Musts.", reference("podTerm", "A must.")),
            "preferredDuringSchedulingIgnoredDuringExecution": _weighted("podAffinityTerm", "podTerm"),
        },
    )


_AFFINITY = fields(
    "Where the scheduler puts pods.",
    of={
        "nodeAffinity": fields(
            "By the nodes' labels.",
            of={
                "requiredDuringSchedulingIgnoredDuringExecution": fields(
                    "Musts.",
                    "nodeSelectorTerms",
                    of={"nodeSelectorTerms": listing("One of these.", reference("nodeTerm", "A must."))},
                ),
                "preferredDuringSchedulingIgnoredDuringExecution": _weighted("preference", "nodeTerm"),
            },
        ),
        "podAffinity": _pod_affinity("Near other pods."),
        "podAntiAffinity": _pod_affinity("Away from other pods."),
    },
)
_TOLERATION = fields(
    "A taint that is put up with.",
    of={
        "key": text("The taint's key."),
        "operator": choice("Whether its value counts.", "Exists", "Equal"),
        "value": text("The taint's value."),
        "effect": choice("Which effect.", "NoSchedule", "PreferNoSchedule", "NoExecute"),
        "tolerationSeconds": whole("For how long."),
    },
)
_RESOURCES = fields(
    "What a container asks for and may use.",
    of={
        "requests": named("What the scheduler sets aside, by resource.", _QUANTITY),
        "limits": named("What it may use, by resource.", _QUANTITY),
        "claims": listing(
            "Claims of the pod that this container uses.",
            fields(
                "A claim.", "name", of={"name": text("Its name in the pod."), "request": text("One of its requests.")}
            ),
        ),
    },
)
_VOLUME = fields(
    "A source of a volume.",
    of={
        "persistentVolumeClaim": fields(
            "A claim of this namespace.",
            "claimName",
            of={"claimName": text("Its name."), "readOnly": flag("Whether it is mounted read-only.")},
        ),
        "hostPath": fields(
            "A directory of the node.", "path", of={"path": text("The directory."), "type": text("What it has to be.")}
        ),
        "nfs": fields(
            "A share.",
            "server",
            "path",
            of={
                "server": text("The server."),
                "path": text("The exported path."),
                "readOnly": flag("Whether it is mounted read-only."),
            },
        ),
        "csi": fields(
            "A volume of a driver.",
            "driver",
            of={
                "driver": text("The driver."),
                "fsType": text("The file system."),
                "readOnly": flag("Whether it is mounted read-only."),
                "volumeAttributes": named("What the driver wants to know.", text("A value.")),
                "nodePublishSecretRef": fields("Its secret.", "name", of={"name": text("The secret's name.")}),
            },
        ),
        "image": fields(
            "An OCI image as a volume.",
            "reference",
            of={
                "reference": text("The image."),
                "pullPolicy": choice("When it is pulled.", "Always", "IfNotPresent", "Never"),
            },
        ),
        "emptyDir": fields(
            "An empty directory.",
            of={"medium": choice("On what.", "", "Memory"), "sizeLimit": _QUANTITY},
        ),
        "configMap": fields("A ConfigMap.", "name", of={"name": text("Its name."), "items": _items()}),
        "secret": fields("A Secret.", "secretName", of={"secretName": text("Its name."), "items": _items()}),
    },
)
_FIELD_REF = fields(
    "A field of the pod.", "fieldPath", of={"fieldPath": text("The field."), "apiVersion": text("Of which API.")}
)
_ENV = fields(
    "A variable.",
    "name",
    of={
        "name": text("Its name."),
        "value": text("Its value."),
        "valueFrom": fields(
            "Where its value comes from.",
            of={"secretKeyRef": _key_in("Secret"), "configMapKeyRef": _key_in("ConfigMap"), "fieldRef": _FIELD_REF},
            exactly_one=True,
        ),
    },
)
_PEER = fields(
    "Who may come, as in a NetworkPolicy.",
    of={
        "podSelector": reference("labelSelector", "Which pods."),
        "namespaceSelector": reference("labelSelector", "Of which namespaces."),
        "ipBlock": fields(
            "From which addresses.",
            "cidr",
            of={"cidr": text("A range of addresses."), "except": listing("But not from these.", text("A range."))},
        ),
    },
)

DEFINITIONS: dict[str, Any] = {
    "affinity": _AFFINITY,
    "env": _ENV,
    "labelSelector": _LABEL_SELECTOR,
    "nodeTerm": _NODE_TERM,
    "peer": _PEER,
    "podTerm": _POD_TERM,
    "resources": _RESOURCES,
    "toleration": _TOLERATION,
    "volume": _VOLUME,
}
