"""A client of Kubernetes' API server, for the namespace and the rights of a service account."""

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from headway.core.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, UnavailableError

FIELD_MANAGER = "headway-controller"
GROUP = "serving.headway.dev"
VERSION = "v1alpha1"

_CALL_TIMEOUT_S = 10.0
_WATCH_S = 240  # then all is listed anew
_WATCH_MARGIN_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKind:
    """A kind of objects of a namespace, one of ours unless a group is given; '' is Kubernetes' core."""

    kind: str
    plural: str
    group: str = GROUP
    version: str = VERSION

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{root}/namespaces/{namespace}/{self.plural}"


PODS = ResourceKind(kind="Pod", plural="pods", group="", version="v1")
_EVENTS = ResourceKind(kind="Event", plural="events", group="", version="v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceList:
    """Objects of one kind, as of a version of the whole."""

    version: str
    objects: tuple[Mapping[str, Any], ...]


class KubernetesApi:
    """Calls the API server.

    Attributes:
        namespace: whose objects it is about.

    Args:
        url: of the API server.
        directory: of a service account: `token`, which may be replaced at any time, `ca.crt` and `namespace`.
        may_act: whether anything may be changed now; while it may not, changes raise UnavailableError.
    """

    def __init__(self, url: str, *, directory: Path, may_act: Callable[[], Awaitable[bool]]) -> None:
        try:
            self.namespace = (directory / "namespace").read_text().strip()
            context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
        except OSError as error:
            raise FailedPreconditionError(
                f"The service account in {directory} cannot be read: {error.strerror}.",
                hint="Mount one there, or run without model resources.",
                field="service_account_dir",
            ) from None
        self._token = directory / "token"
        self._may_act = may_act
        self._client = httpx.AsyncClient(base_url=url, verify=context, timeout=_CALL_TIMEOUT_S)

    async def close(self) -> None:
        await self._client.aclose()

    async def list(self, kind: ResourceKind, *, selector: str = "") -> ResourceList:
        """All objects of a kind, or those with the labels of a selector."""
        found = await self._call("GET", kind.path(self.namespace), parameters=_selecting(selector))
        return ResourceList(version=found["metadata"]["resourceVersion"], objects=tuple(found["items"]))

    async def watch(
        self, kind: ResourceKind, *, version: str, selector: str = ""
    ) -> AsyncIterator[tuple[str, Mapping[str, Any]]]:
        """Yields ('ADDED' | 'MODIFIED' | 'DELETED', object) from a version on; ends after some minutes, and where the
        server has forgotten that version."""
        parameters = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(_WATCH_S)} | _selecting(selector)
        timeout = httpx.Timeout(_CALL_TIMEOUT_S, read=_WATCH_S + _WATCH_MARGIN_S)
        with _faults():
            async with self._client.stream(
                "GET", kind.path(self.namespace), params=parameters, headers=self._headers(), timeout=timeout
            ) as response:
                if response.status_code != httpx.codes.OK:
                    await response.aread()
                    _check(response)
                async for line in response.aiter_lines():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return
                    yield event["type"], event["object"]

    async def apply(self, kind: ResourceKind, name: str, fields: Mapping[str, Any]) -> None:
        """Makes the object's fields these, and the object where there is none: fields that we gave before and do not
        give now are gone."""
        await self._apply(kind, name, fields, path=f"{kind.path(self.namespace)}/{name}")

    async def apply_status(self, kind: ResourceKind, name: str, status: Mapping[str, Any]) -> None:
        """Makes the object's status this one: fields that we gave before and do not give now are gone."""
        await self._apply(kind, name, {"status": status}, path=f"{kind.path(self.namespace)}/{name}/status")

    async def delete(self, kind: ResourceKind, name: str, *, uid: str) -> None:
        """Has this very object deleted; NotFoundError where it is gone. One of its name that was made since stays."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        await self._change("DELETE", f"{kind.path(self.namespace)}/{name}", body=body)

    async def create_event(self, event: Mapping[str, Any]) -> None:
        await self._change("POST", _EVENTS.path(self.namespace), body=event)

    async def _apply(self, kind: ResourceKind, name: str, fields: Mapping[str, Any], *, path: str) -> None:
        metadata = {**fields.get("metadata", {}), "name": name}
        await self._change(
            "PATCH",
            path,
            body={**fields, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata},
            kind="application/apply-patch+yaml",
            parameters={"fieldManager": FIELD_MANAGER, "force": "true"},
        )

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token.read_text().strip()}"}

    async def _change(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any],
        kind: str = "application/json",
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        if not await self._may_act():
            raise UnavailableError("Another controller may be at work by now.", hint="That one does it.")
        await self._call(method, path, body=body, kind=kind, parameters=parameters)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        kind: str = "application/json",
        parameters: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        with _faults():
            response = await self._client.request(
                method,
                path,
                params=parameters,
                content=None if body is None else json.dumps(body),
                headers=self._headers() | {"content-type": kind},
            )
        _check(response)
        answer: dict[str, Any] = response.json()
        return answer


def _selecting(selector: str) -> dict[str, str]:
    return {"labelSelector": selector} if selector else {}


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except httpx.HTTPError as error:
        raise UnavailableError(f"The API server does not answer: {error!r}.", hint="It is tried again.") from None


def _check(response: httpx.Response) -> None:
    """Raises what an answer tells of."""
    if response.is_success:
        return
    told = f"The API server answers {response.status_code} to {response.request.method} {response.request.url.path}"
    with suppress(ValueError, KeyError, TypeError):  # a proxy's answer may be anything
        told += f": {response.json()['message']}"
    if response.status_code == httpx.codes.NOT_FOUND:
        raise NotFoundError(told, hint="Is the resource's definition installed?")
    if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise FailedPreconditionError(told, hint="Give the controller the rights of the chart's Role.")
    if response.status_code == httpx.codes.UNPROCESSABLE_ENTITY or response.status_code == httpx.codes.BAD_REQUEST:
        raise InvalidArgumentError(told, hint="The definition of the resource is of another version.")
    raise UnavailableError(told, hint="It is tried again.")
