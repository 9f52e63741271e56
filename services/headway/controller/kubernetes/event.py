"""What happened to a resource, as an event of Kubernetes. Pure."""

from typing import Any

from headway.controller.kubernetes.api import ResourceKind

_MESSAGE_CHARS = 1024  # of core/v1


def event_of(
    kind: ResourceKind, *, name: str, uid: str, namespace: str, is_warning: bool, reason: str, message: str, now: str
) -> dict[str, Any]:
    """The event.

    Args:
        name, uid: of the resource.
        reason: one word.
        message: its end is cut off where it is longer than Kubernetes takes.
        now: in UTC, as text.
    """
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name}.", "namespace": namespace},
        "involvedObject": {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "name": name,
            "namespace": namespace,
            "uid": uid,
        },
        "type": "Warning" if is_warning else "Normal",
        "reason": reason,
        "message": message[:_MESSAGE_CHARS],
        "source": {"component": "headway-controller"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
