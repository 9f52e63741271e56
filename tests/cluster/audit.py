"""What an API server has been asked, by the log that it keeps."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that has been answered; a watch from when it is open.

    Attributes:
        resource: with the subresource after a slash.
        status: of HTTP.
    """

    user: str
    verb: str
    group: str
    resource: str
    status: int

    @property
    def right(self) -> tuple[str, str, str]:
        """What a Role has to grant for it."""
        return (self.group, self.resource, self.verb)


TESTS = "tests"  # the user agent of requests that only try what is refused


class Audit:
    """The log of the requests that `audit_policy.yaml` says."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def calls(self, user: str) -> list[Call]:
        """All of a user so far, but for the tests' own. Each is there before its answer is."""
        records = map(json.loads, self.path.read_text().splitlines() if self.path.exists() else ())
        theirs = (each for each in records if each["user"]["username"] == user and each.get("userAgent") != TESTS)
        calls = {record["auditID"]: _call(record) for record in theirs}
        return list(calls.values())


def account(namespace: str, name: str) -> str:
    """The user that a service account is."""
    return f"system:serviceaccount:{namespace}:{name}"


def _call(record: dict[str, Any]) -> Call:
    asked = record.get("objectRef", {})
    resource = "/".join(part for part in (asked.get("resource", ""), asked.get("subresource", "")) if part)
    return Call(
        user=record["user"]["username"],
        verb=record["verb"],
        group=asked.get("apiGroup", ""),
        resource=resource,
        status=record["responseStatus"]["code"],
    )
