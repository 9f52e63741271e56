"""A client of Kubernetes' API server, for the namespace and the rights of a service account."""

import json
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
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
    """

    def __init__(self, url: str, *, directory: Path) -> None:
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
        self._client = httpx.AsyncClient(base_url=url, verify=context, timeout=_CALL_TIMEOUT_S)

    async def close(self) -> None:
        await self._client.aclose()

    async def list(self, plural: str) -> ResourceList:
        """All objects of a kind of ours."""
        found = await self._call("GET", self._path(plural))
        return ResourceList(version=found["metadata"]["resourceVersion"], objects=tuple(found["items"]))

    async def watch(self, plural: str, *, version: str) -> AsyncIterator[tuple[str, Mapping[str, Any]]]:
        """Yields ('ADDED' | 'MODIFIED' | 'DELETED', object) from a version on; ends after some minutes, and where the
        server has forgotten that version."""
        parameters = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(_WATCH_S)}
        timeout = httpx.Timeout(_CALL_TIMEOUT_S, read=_WATCH_S + _WATCH_MARGIN_S)
        with _faults():
            async with self._client.stream(
                "GET", self._path(plural), params=parameters, headers=self._headers(), timeout=timeout
            ) as response:
                if response.status_code != httpx.codes.OK:
                    await response.aread()
                    _check(response)
                async for line in response.aiter_lines():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return
                    yield event["type"], event["object"]

    async def apply_status(self, plural: str, kind: str, name: str, status: Mapping[str, Any]) -> None:
        """Makes the object's status this one: fields that we gave before and do not give now are gone."""
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": name}, "status": status}
        await self._call(
            "PATCH",
            f"{self._path(plural)}/{name}/status",
            body=body,
            kind="application/apply-patch+yaml",
            parameters={"fieldManager": FIELD_MANAGER, "force": "true"},
        )

    async def create_event(self, event: Mapping[str, Any]) -> None:
        await self._call("POST", f"/api/v1/namespaces/{self.namespace}/events", body=event)

    def _path(self, plural: str) -> str:
        return f"/apis/{GROUP}/{VERSION}/namespaces/{self.namespace}/{plural}"

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token.read_text().strip()}"}

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
