"""A client of a vLLM server: what it serves, how it is, and its endpoint that takes and gives tokens."""

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from headway.core.engine_server import API_KEY, ServerFacts
from headway.core.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from headway.worker.vllm.environment import SUPPORTED_VERSION
from headway.worker.vllm_server.exposition import ServerLoad, cache_facts, read_load
from headway.worker.vllm_server.published_cache import check_publishes

_GENERATE = "/inference/v1/generate"
_FIELD = "--engine-url"
_TIMEOUT_S = 10.0


class ServerGoneError(Exception):
    """The server does not answer, or has broken off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A server's version, and what it serves."""

    version: str
    served: ServerFacts


class VllmServer:
    """Calls one server. Made where an event loop runs, whose tasks it is for.

    Raises:
        InvalidArgumentError: the URL is none of HTTP.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        if httpx.URL(self.url).scheme not in ("http", "https") or not httpx.URL(self.url).host:
            raise InvalidArgumentError(
                f"{_FIELD} {url} is no address of a server.", hint="Write http://HOST:PORT.", field=_FIELD
            )
        key = os.environ.get(API_KEY)
        self._client = httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=_TIMEOUT_S,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            trust_env=False,
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def describe(self, model: str) -> Described:
        """What the server is, for the model of that name.

        Raises:
            FailedPreconditionError: it does not answer, is no vLLM server of the version that Headway knows, or was
                started without something that Headway needs of it.
        """
        try:
            version = str((await self._get("/version")).json()["version"])
        except (KeyError, TypeError, ValueError):
            raise self._unfit("is no vLLM server: it does not tell its version") from None
        if not version.startswith(f"{SUPPORTED_VERSION}."):
            raise self._unfit(
                f"is vLLM {version}, and Headway speaks to {SUPPORTED_VERSION}",
                hint=f"Run vllm=={SUPPORTED_VERSION}.0.",
            )
        if (await self._ask(_GENERATE)).status_code == httpx.codes.NOT_FOUND:
            raise self._unfit(f"has no {_GENERATE}", hint="Start it with --enable-scale-out.")
        models = [each for each in (await self._get("/v1/models")).json()["data"] if each.get("parent") is None]
        cache = cache_facts((await self._get("/metrics")).text)
        if cache is None or not models:
            raise self._unfit("does not tell its blocks in /metrics", hint="Start it without --disable-log-stats.")
        served = ServerFacts(
            model=model,
            url=self.url,
            names=tuple(dict.fromkeys(name for each in models for name in (each["id"], each["root"]))),
            num_blocks=cache.num_blocks,
            block_size=cache.block_size,
            max_model_len=min(models[0]["max_model_len"], cache.num_blocks * cache.block_size),
            has_prefix_cache=cache.has_prefix_cache,
        )
        return Described(version=version, served=served)

    async def load(self) -> ServerLoad:
        """How busy it is; ServerGoneError where it does not answer, or its engine is dead."""
        with_engine = await self._ask("/health", is_lost=True)
        metrics = await self._ask("/metrics", is_lost=True)
        if with_engine.status_code != httpx.codes.OK or metrics.status_code != httpx.codes.OK:
            raise ServerGoneError("its engine is dead")
        return read_load(metrics.text)

    async def generate(self, body: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Yields the chunks of a stream. Whoever stops reading has closed the connection, which aborts the request.

        Raises:
            InvalidArgumentError: the server refuses the request, in its own words.
            UnavailableError: it has given the request up.
            ServerGoneError: it has broken off.
        """
        async with self._stream(body) as response:
            async for line in response.aiter_lines():
                if not line.startswith("data: "):
                    continue
                data = line.removeprefix("data: ")
                if data == "[DONE]":
                    return
                chunk = json.loads(data)
                if "error" in chunk:
                    raise UnavailableError(f"vLLM has given the request up: {_words(chunk)}", hint="Try again.")
                yield chunk
        raise ServerGoneError("the stream ended early")

    @asynccontextmanager
    async def _stream(self, body: Mapping[str, Any]) -> AsyncIterator[httpx.Response]:
        timeout = httpx.Timeout(_TIMEOUT_S, read=None)  # a request may wait for long
        try:
            async with self._client.stream("POST", _GENERATE, json=body, timeout=timeout) as response:
                if response.status_code != httpx.codes.OK:
                    await response.aread()
                    if response.is_client_error:
                        raise InvalidArgumentError(f"vLLM refuses the request: {_refusal(response)}")
                    raise ServerGoneError(f"it answers {response.status_code}")
                yield response
        except httpx.TransportError as error:
            raise ServerGoneError(_reason(error)) from error

    async def _get(self, path: str) -> httpx.Response:
        response = await self._ask(path)
        if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise self._unfit("asks for a key", hint=f"Put it into the environment variable {API_KEY}.")
        if response.status_code != httpx.codes.OK:
            raise self._unfit(f"answers {response.status_code} to {path}")
        return response

    async def _ask(self, path: str, *, is_lost: bool = False) -> httpx.Response:
        """`is_lost`: whether silence is a ServerGoneError, not a FailedPreconditionError."""
        try:
            return await self._client.get(path)
        except httpx.TransportError as error:
            if is_lost:
                raise ServerGoneError(_reason(error)) from error
            raise self._unfit(f"does not answer: {_reason(error)}", hint="Start it, or correct the URL.") from None

    def _unfit(self, words: str, *, hint: str = "") -> FailedPreconditionError:
        return FailedPreconditionError(f"The vLLM server at {self.url} {words}.", hint=hint, field=_FIELD)


async def describe_server(url: str, *, model: str, events: str = "") -> Described:
    """See `VllmServer.describe`; FailedPreconditionError also where events should be published, and are not."""
    server = VllmServer(url)
    try:
        described = await server.describe(model)
    finally:
        await server.close()
    if events:
        await check_publishes(events)
    return described


def check_serves(served: ServerFacts, *, directory: str) -> None:
    """FailedPreconditionError where the server has another model."""
    if not served.serves(served.model, directory):
        raise FailedPreconditionError(
            f"The vLLM server at {served.url} serves {' or '.join(served.names)}, not '{served.model}'.",
            hint=f"Name the model as the server does: --model {served.names[0]}={directory}.",
            field=_FIELD,
        )


def _reason(error: httpx.TransportError) -> str:
    return str(error).rstrip(".") or type(error).__name__


def _refusal(response: httpx.Response) -> str:
    try:
        return _words(response.json())
    except ValueError:
        return response.text


def _words(answer: Mapping[str, Any]) -> str:
    error = answer.get("error", answer)
    return str(error.get("message", error) if isinstance(error, dict) else error)
