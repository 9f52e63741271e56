"""HTTP connections: uvicorn's, with limits for clients that send too much, or too slowly, or do not read."""

import asyncio
import math
import socket
from dataclasses import dataclass
from typing import Any, Final, cast

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from headway.gateway.openai.error import status_body
from headway.gateway.write_coalescer import BatchedTransport, WriteCoalescer
from headway.observe.metrics import HTTP_REQUESTS

WRITE_CHUNK: Final = "headway.write_chunk"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """The limits of one connection, for whoever has no key, too.

    Attributes:
        max_url_bytes, max_headers, max_header_bytes: of a request; the last of URL and headers together.
        header_timeout_s: for the first request line and its headers, from when the connection is made; for a later
            request from its first byte on.
        body_timeout_s: for the whole body, and a second more for each `min_body_bytes_per_s` that have come.
        write_timeout_s: after which a client is given up that reads nothing of what waits for it.
        max_connections: of all clients together; one more is closed at once.
        max_late_body_bytes: of a body that has been answered already, and is read so that the client sees that.
        max_waiting_requests: that came on a connection while one of it is being answered; one more ends it.
    """

    max_url_bytes: int = 8 * 1024
    max_headers: int = 256
    max_header_bytes: int = 64 * 1024
    header_timeout_s: float = 20.0
    body_timeout_s: float = 20.0
    min_body_bytes_per_s: int = 64 * 1024
    write_timeout_s: float = 30.0
    max_connections: int = 16_384
    max_late_body_bytes: int = 64 * 1024 * 1024
    max_waiting_requests: int = 16


class GuardedHttpProtocol(HttpToolsProtocol):
    """One connection.

    Requests come with an extension, `WRITE_CHUNK`: `write` sends a part of a chunked answer that has begun, as ASGI's
    `send` does, but at once, whoever calls it. It does not wait for a client that reads slowly: what is written is kept
    until that has read it.

    What a client takes too long for has a time by which it is due; the server calls `end_if_slow` from time to time,
    so that a request costs no timer.
    """

    limits: HttpLimits
    coalescer: WriteCoalescer
    is_leaving = False

    _due_s = math.inf  # the rest of a request
    _write_due_s = math.inf  # that the client reads
    _num_unread_bytes = 0
    _is_body = False
    _running: RequestResponseCycle | None = None  # the request that is answered, or was last; `cycle` came last
    _num_body_bytes = 0
    _num_head_bytes = 0
    _num_late_bytes = 0
    _refusal: tuple[int, str] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", BatchedTransport(transport, self.coalescer))
        self._due_s = self.loop.time() + self.limits.header_timeout_s
        timeout_ms = int(self.limits.write_timeout_s * 1000)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
        if len(self.connections) > self.limits.max_connections:
            HTTP_REQUESTS.labels("none", "none", 503).inc()
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        super().data_received(data)
        if self._due_s == math.inf and self._is_idle:  # these bytes began nothing, and nothing waits for the next ones
            self._is_body, self._num_head_bytes = False, 0
            self._due_s = self.loop.time() + self.limits.header_timeout_s
        if not self._is_body and self._due_s < math.inf:  # a header that does not end is told by no callback
            self._num_head_bytes += len(data)
            if self._num_head_bytes > self.limits.max_header_bytes and self._refusal is None:
                self._refuse(431, f"The headers are larger than {self.limits.max_header_bytes} bytes.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells the request that is answered, too, where others wait behind it."""
        super().connection_lost(exc)
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if len(self.pipeline) >= self.limits.max_waiting_requests:
            self._refusal = 429, f"More than {self.limits.max_waiting_requests} requests wait on one connection."
            raise ValueError(self._refusal[1])
        self.scope["extensions"] = {WRITE_CHUNK: {"write": self._write_chunk}}
        self._is_body, self._num_head_bytes, self._num_body_bytes, self._num_late_bytes = False, 0, 0, 0
        self._due_s = self.loop.time() + self.limits.header_timeout_s
        self._head_bytes_told = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.limits.max_url_bytes:
            self._refusal = 414, f"The URL is longer than {self.limits.max_url_bytes} bytes."
            raise ValueError(self._refusal[1])
        self._head_bytes_told += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_body:  # what comes behind a chunked body is no header: nobody in front of us has looked at it
            super().on_header(name, value)
        self._head_bytes_told += len(name) + len(value)
        if self._head_bytes_told > self.limits.max_header_bytes:
            self._refusal = 431, f"The headers are larger than {self.limits.max_header_bytes} bytes."
            raise ValueError(self._refusal[1])
        if len(self.headers) > self.limits.max_headers:
            self._refusal = 431, f"There are more than {self.limits.max_headers} headers."
            raise ValueError(self._refusal[1])

    def on_headers_complete(self) -> None:
        self._is_body, self._due_s = True, self.loop.time() + self.limits.body_timeout_s
        super().on_headers_complete()
        if self.is_leaving:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._num_body_bytes += len(body)
        super().on_body(body)
        if self.cycle.response_complete:
            self._num_late_bytes += len(body)
            if self._num_late_bytes > self.limits.max_late_body_bytes:
                self.transport.abort()

    def on_message_complete(self) -> None:
        self._due_s = math.inf
        super().on_message_complete()

    def pause_writing(self) -> None:
        self._num_unread_bytes = self.transport.get_write_buffer_size()
        self._write_due_s = self.loop.time() + self.limits.write_timeout_s
        super().pause_writing()

    def resume_writing(self) -> None:
        self._write_due_s = math.inf
        super().resume_writing()

    def end_if_slow(self, now_s: float) -> None:
        """Ends the connection where the client has taken too long, and with it what was being done for it."""
        if self._write_due_s < math.inf and self._has_read():
            self._write_due_s = now_s + self.limits.write_timeout_s
        if self._write_due_s < now_s:
            self.transport.abort()
        elif self._due_s + self._num_body_bytes / self.limits.min_body_bytes_per_s < now_s:
            what = "body" if self._is_body else "headers"
            self._due_s = math.inf
            self._refuse(408, f"The {what} of the request did not arrive in time.")

    def _has_read(self) -> bool:
        """Whether less waits for the client than at the last look: it is slow, and not gone."""
        before, self._num_unread_bytes = self._num_unread_bytes, self.transport.get_write_buffer_size()
        return self._num_unread_bytes < before

    def send_400_response(self, msg: str) -> None:
        """Answers to a request that is no HTTP, or beyond the limits: it never reaches the application."""
        self._refuse(*(self._refusal or (400, msg)))

    def _refuse(self, status: int, message: str) -> None:
        self._refusal = status, message
        HTTP_REQUESTS.labels("none", "none", status).inc()
        if self._may_answer:
            content = status_body(status, message)
            head = f"content-type: application/json\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[status] + head.encode() + content)
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _is_idle(self) -> bool:
        return self._running is None or self._running.response_complete

    @property
    def _may_answer(self) -> bool:
        """Whether the client takes what is written now for the answer to what it sends."""
        if self._running is None or self._running.response_complete:
            return True
        return self._is_body and self._running is self.cycle and not self._running.response_started

    def _write_chunk(self, body: bytes) -> None:
        if body:  # an empty chunk would end the answer
            self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))


def guarded_http_protocol(limits: HttpLimits) -> type[GuardedHttpProtocol]:
    """The connections of one server."""
    own: dict[str, Any] = {"limits": limits, "coalescer": WriteCoalescer()}
    return type("HttpProtocol", (GuardedHttpProtocol,), own)
