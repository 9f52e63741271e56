"""HTTP/1.1 over keep-alive sockets, as little of it as a load generator needs.

A benchmark client shares its cores with the server, so this one stays out of the way: one protocol object per socket,
a C parser, no header dictionaries, no buffering between the socket and the reader of a body.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httptools

BodyReader = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to connect."""

    host: str
    port: int

    @classmethod
    def from_url(cls, url: str) -> "Endpoint":
        """Host and port of a plain `http://` URL; raises ValueError on any other."""
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"{url!r} is not an http:// URL; give one like http://127.0.0.1:8000")
        return cls(parts.hostname, parts.port or 80)


class Connection(asyncio.Protocol):
    """One socket that carries one exchange at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.reusable = True
        self.answered = False
        self._has_length = False
        self._ends_with_connection = False
        self._parser: httptools.HttpResponseParser | None = None
        self._reader: BodyReader | None = None
        self._status: asyncio.Future[int] | None = None

    async def exchange(self, request: bytes, *, reader: BodyReader) -> int:
        """Send a request, hand every piece of the answer's body to `reader`, return the status when all is read.

        Raises ConnectionError when the peer hangs up before the end or does not speak HTTP.
        """
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError("the server closed the connection")
        self.answered = self._has_length = self._ends_with_connection = False
        self._parser, self._reader = httptools.HttpResponseParser(self), reader
        self._status = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._status

    def close(self) -> None:
        self.reusable = False
        if self.transport is not None:
            self.transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            return self.close()
        self.answered = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"the answer cannot be read: {error!r}"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        if self._ends_with_connection and self._parser is not None:
            self.on_message_complete()
        cause = f": {exc}" if exc else ""
        self._fail(ConnectionResetError(f"the server hung up before the end of its answer{cause}"))

    # httptools.HttpResponseParser

    def on_header(self, name: bytes, _value: bytes) -> None:
        self._has_length = self._has_length or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        self._ends_with_connection = not self._has_length

    def on_body(self, body: bytes) -> None:
        if self._reader is not None:
            self._reader(body)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        self.reusable = self.reusable and self._parser.should_keep_alive()
        if self._status is not None and not self._status.done():
            self._status.set_result(self._parser.get_status_code())
        self._parser = None

    def _fail(self, error: ConnectionError) -> None:
        if self._status is not None and not self._status.done():
            self._status.set_exception(error)


class ConnectionPool:
    """Open sockets to one endpoint; an exchange takes an idle one or opens another."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._idle: list[Connection] = []

    async def exchange(self, request: bytes, *, reader: BodyReader) -> int:
        """As `Connection.exchange`; an idle socket that the server has closed meanwhile is replaced once."""
        connection = self._take_idle()
        if connection is not None:
            try:
                return await self._exchange_on(connection, request, reader)
            except ConnectionResetError:
                if connection.answered:
                    raise
        return await self._exchange_on(await self._open(), request, reader)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        return None

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, self.endpoint.host, self.endpoint.port)
        return connection

    async def _exchange_on(self, connection: Connection, request: bytes, reader: BodyReader) -> int:
        finished = False
        try:
            status = await connection.exchange(request, reader=reader)
            finished = True
            return status
        finally:
            if finished and connection.reusable:
                self._idle.append(connection)
            else:
                connection.close()
