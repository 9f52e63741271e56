"""What the values of every kind of pod have in common."""

from deploy.chart.shape import Schema, fields, listing, named, reference, text

NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""Of a pool, or of a claim in a pod."""


def placing() -> dict[str, Schema]:
    return {
        "resources": reference("resources", "What its container asks for and may use."),
        "nodeSelector": named("Labels of the nodes that it may run on.", text("A value.")),
        "tolerations": listing("Taints that it puts up with.", reference("toleration", "A taint.")),
        "affinity": reference("affinity", "Where the scheduler puts it."),
    }


def image(what: str) -> Schema:
    return fields(
        f"The image of {what}.",
        "repository",
        of={
            "repository": text("Registry and name.", least=1),
            "tag": text("Its tag; the chart's appVersion where it is empty."),
            "digest": text("Its digest, which counts more than a tag.", pattern="^(sha256:[0-9a-f]{64})?$"),
        },
    )
