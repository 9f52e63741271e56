"""Clients that hold connections to a gateway, each in its way, and open another whenever one ends."""

import asyncio
import json
import select
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from benchmarks.serve.connection import Endpoint

Hold = Callable[[socket.socket, str], Awaitable[None]]
"""What a client does with a connection, given the host's name; it returns when the connection has ended."""

_RECEIVE_BYTES = 4096  # the least that the kernel keeps for a client that does not read
_PAUSE_S = 0.5
_OPENED_AT_ONCE = 50


@dataclass(slots=True, kw_only=True)
class Crowd:
    """Attributes:
    num_opened: connections, the first of each client and those that followed.
    num_open: now.
    """

    url: str
    hold: Hold
    num_clients: int
    num_opened: int = 0
    num_open: int = 0
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def come(self) -> None:
        """Returns when each has had a connection."""
        endpoint = Endpoint.from_url(self.url)
        gate = asyncio.Semaphore(_OPENED_AT_ONCE)
        self._tasks = [asyncio.create_task(self._stay(endpoint, gate)) for _ in range(self.num_clients)]
        while self.num_opened < self.num_clients:  # noqa: ASYNC110 - counted by many tasks
            await asyncio.sleep(0.05)

    async def leave(self) -> None:
        """Ends all connections; raises what went wrong with a client."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def _stay(self, endpoint: Endpoint, gate: asyncio.Semaphore) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with socket.socket() as connection, suppress(OSError):
                connection.settimeout(0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
                async with gate:
                    await loop.sock_connect(connection, (endpoint.host, endpoint.port))
                self.num_opened += 1
                self.num_open += 1
                try:
                    await self.hold(connection, f"{endpoint.host}:{endpoint.port}")
                finally:
                    self.num_open -= 1
            await asyncio.sleep(_PAUSE_S)


async def be_idle(connection: socket.socket, host: str) -> None:
    """One request, and then nothing."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, f"GET /live HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    await _read_to_end(connection)


def half_a_body(*, model: str, api_key: str) -> Hold:
    """Half of a body, and then nothing."""

    async def hold(connection: socket.socket, host: str) -> None:
        body = json.dumps({"model": model, "prompt": "half " * 8000}).encode()
        message = _head(host, api_key, len(body)) + body[: len(body) // 2]
        await asyncio.get_running_loop().sock_sendall(connection, message)
        await _read_to_end(connection)

    return hold


def unread(*, model: str, api_key: str, num_tokens: int, n: int) -> Hold:
    """A stream of `n` samples that nobody reads, until the server ends it."""

    async def hold(connection: socket.socket, host: str) -> None:
        message = _streamed(host, api_key, model, num_tokens, n)
        await asyncio.get_running_loop().sock_sendall(connection, message)
        end = select.poll()
        end.register(connection, select.POLLRDHUP)  # errors are always told
        while not end.poll(0):  # noqa: ASYNC110 - it is the server that ends it
            await asyncio.sleep(_PAUSE_S)

    return hold


def read_slowly(*, model: str, api_key: str, num_tokens: int, bytes_per_s: int) -> Hold:
    """A stream that is read a little every second, to its end, and then the next one."""

    async def hold(connection: socket.socket, host: str) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, _streamed(host, api_key, model, num_tokens, n=1))
        while await loop.sock_recv(connection, bytes_per_s):  # noqa: ASYNC110 - slow on purpose
            await asyncio.sleep(1)

    return hold


async def _read_to_end(connection: socket.socket) -> None:
    while await asyncio.get_running_loop().sock_recv(connection, _RECEIVE_BYTES):
        pass


def _streamed(host: str, api_key: str, model: str, num_tokens: int, n: int) -> bytes:
    body = {"model": model, "prompt": [*range(10, 26)], "max_tokens": num_tokens, "ignore_eos": True, "n": n}
    text = json.dumps(body | {"stream": True, "temperature": 1.0}).encode()
    return _head(host, api_key, len(text)) + text


def _head(host: str, api_key: str, num_bytes: int) -> bytes:
    return (
        f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {api_key}\r\n"
        f"Connection: close\r\nContent-Type: application/json\r\nContent-Length: {num_bytes}\r\n\r\n"
    ).encode()
