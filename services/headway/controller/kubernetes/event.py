"""What happened to a resource, as an event of Kubernetes. Pure."""

from typing import Any

from headway.controller.kubernetes.api import GROUP, VERSION
from headway.controller.kubernetes.model_resource import KIND, ModelResource

_MESSAGE_CHARS = 1024  # of core/v1


def event_of(
    resource: ModelResource, *, namespace: str, is_warning: bool, reason: str, message: str, now: str
) -> dict[str, Any]:
    """The event.

    Args:
        reason: one word.
        message: its end is cut off where it is longer than Kubernetes takes.
        now: in UTC, as text.
    """
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{resource.name}.", "namespace": namespace},
        "involvedObject": {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "name": resource.name,
            "namespace": namespace,
            "uid": resource.uid,
        },
        "type": "Warning" if is_warning else "Normal",
        "reason": reason,
        "message": message[:_MESSAGE_CHARS],
        "source": {"component": "headway-controller"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
