"""Clients that send too much, too slowly, or do not read: each harms itself."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from headway.core.errors import ResourceExhaustedError
from headway.gateway.http_protocol import GuardedHttpProtocol, HttpLimits
from headway.gateway.http_server import HttpServer
from headway.gateway.slots import BodyMemory
from tests.gateway.test_guard import KEY
from tests.gateway.world import MODEL, Gateway, World

GET = b"GET / HTTP/1.1\r\n\r\n"
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: h\r\n"


class Application:
    """Reads the body, but for /early, then sends 64 MiB where the path says so, in pieces or whole, or waits until the
    client leaves. `has_ended` is set behind that."""

    def __init__(self) -> None:
        self.has_ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope["path"], receive, send)
        finally:
            self.has_ended.set()

    async def _answer(self, path: str, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] != "http.disconnect":
            if path == "/early" or (not message["more_body"] and path != "/wait"):
                break
        else:
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1024 if path == "/much" else 0):
            await send({"type": "http.response.body", "body": bytes(64 * 1024), "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": bytes(64 << 20) if path == "/whole" else b"done"})


class _Server(HttpServer):
    """Tells when it can be reached."""

    def __init__(self, application: Application, *, limits: HttpLimits) -> None:
        super().__init__(application, host="127.0.0.1", port=0, grace_s=1, limits=limits)
        self.is_listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_listening.set()


@asynccontextmanager
async def serving(limits: HttpLimits) -> AsyncIterator[tuple[Application, int]]:
    application = Application()
    server = _Server(application, limits=limits)
    task = asyncio.create_task(server.run_forever())
    await server.is_listening.wait()
    yield application, server.port
    await server.stop()
    await task


async def answer(port: int, *pieces: bytes) -> bytes:
    """All that comes for these bytes until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
    try:
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (HEAD + b"".join(b"h%d: v\r\n" % i for i in range(300)) + b"\r\n", b"431"),
        (HEAD + b"".join(b"h%d: %b\r\n" % (i, b"v" * 4000) for i in range(20)) + b"\r\n", b"431"),
        (HEAD + b"h: " + b"v" * 100_000, b"431"),
        (b"nonsense\r\n\r\n", b"400"),
    ],
)
def test_headers_have_limits_before_any_key_is_asked_for(guarded: Gateway, sent: bytes, status: bytes) -> None:
    host, port = guarded.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(sent)
        received = b""
        with suppress(ConnectionResetError):  # not all that was sent is read
            while piece := connection.recv(65536):
                received += piece
    assert received.split(b" ")[1] == status
    assert b'"error":{"message":' in received


def test_headers_within_the_limits_pass(guarded: Gateway) -> None:
    headers = {f"h{i}": "v" * 200 for i in range(200)} | KEY
    assert httpx.get(f"{guarded.url}/v1/models?q={'a' * 8000}", headers=headers).status_code == 200


def test_what_comes_behind_a_chunked_body_is_no_header(guarded: Gateway) -> None:
    """A proxy that sets or strips headers looks at those in front only."""
    body = b'{"model": "%b", "prompt": "a", "max_tokens": 1}' % MODEL.encode()
    chunked = b"transfer-encoding: chunked\r\nconnection: close\r\n%b\r\n%x\r\n%b\r\n0\r\n%b\r\n"
    key = b"authorization: Bearer first\r\n"
    host, port = guarded.url.removeprefix("http://").split(":")
    for head, trailer, status in ((key, b"", b"200"), (b"", key, b"401"), (key, b"x-headway-tenant: none\r\n", b"200")):
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(HEAD + chunked % (head, len(body), body, trailer))
            assert connection.recv(65536).split(b" ")[1] == status


@pytest.mark.parametrize(
    "framing",
    [
        b"content-length: 3\r\ntransfer-encoding: chunked\r\n",
        b"content-length: 3\r\ncontent-length: 5\r\n",
        b"transfer-encoding: xchunked\r\n",
        b"transfer-encoding : chunked\r\n",
        b"content-length: +3\r\n",
    ],
)
def test_a_body_whose_end_two_might_see_differently_is_refused(guarded: Gateway, framing: bytes) -> None:
    host, port = guarded.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(
            HEAD + b"authorization: Bearer first\r\n" + framing + b"\r\n0\r\n\r\nGET /live HTTP/1.1\r\n\r\n"
        )
        assert connection.recv(65536).split(b" ")[1] == b"400"


def test_half_bodies_take_no_place_from_others(guarded: Gateway, world: World) -> None:
    host, port = guarded.url.removeprefix("http://").split(":")
    half = HEAD + b"authorization: Bearer first\r\ncontent-length: 1000\r\n\r\n{"
    connections = [socket.create_connection((host, int(port))) for _ in range(20)]
    for connection in connections:
        connection.sendall(half)
    body = {"model": MODEL, "prompt": "ab", "max_tokens": 2}
    assert httpx.post(f"{guarded.url}/v1/completions", json=body, headers=KEY).is_success
    for connection in connections:
        connection.close()


@pytest.mark.parametrize(
    ("sent", "what"),
    [
        (b"", b"headers"),
        (b"POST / HTTP/1.1\r\nhost:", b"headers"),
        (b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n1234", b"body"),
        (b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\nPOST /", b"headers"),
    ],
)
async def test_what_does_not_come_in_time_is_not_waited_for(sent: bytes, what: bytes) -> None:
    async with serving(HttpLimits(header_timeout_s=0.1, body_timeout_s=0.1)) as (application, port):
        received = await answer(port, sent)
        assert b" 408 " in received
        assert b"The %b of the request did not arrive in time" % what in received
        if what == b"body":
            await asyncio.wait_for(application.has_ended.wait(), 20)


async def test_requests_that_wait_behind_another_are_few_and_their_connection_ends_with_one_more() -> None:
    """Each takes thousands of bytes for the eighteen that it is sent in."""
    async with serving(HttpLimits(max_waiting_requests=3)) as (application, port):
        few = await answer(port, GET * 3 + b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
        assert few.count(b"HTTP/1.1 200") == 4
        with suppress(ConnectionResetError):  # there is more than it reads
            assert await answer(port, b"GET /wait HTTP/1.1\r\n\r\n" + GET * 10_000) == b""
        await asyncio.wait_for(application.has_ended.wait(), 20)


async def test_a_client_that_leaves_is_noticed_where_it_has_sent_more() -> None:
    async with serving(HttpLimits()) as (application, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /wait HTTP/1.1\r\n\r\n" + GET)
        await writer.drain()
        await asyncio.sleep(0.2)  # both are read
        assert not application.has_ended.is_set()
        writer.close()
        await asyncio.wait_for(application.has_ended.wait(), 20)
        assert await reader.read() == b""


async def test_what_is_no_request_keeps_no_connection_between_requests() -> None:
    async with serving(HttpLimits(header_timeout_s=0.5)) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        assert b"HTTP/1.1 200" in await reader.readuntil(b"done")
        writer.write(b"\r\n")
        assert b"HTTP/1.1 408" in await asyncio.wait_for(reader.read(), 20)
        writer.close()


async def test_a_body_that_goes_on_for_ever_after_its_answer_ends_its_connection() -> None:
    async with serving(HttpLimits(max_late_body_bytes=100_000)) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /early HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
        assert b"HTTP/1.1 200" in await reader.readuntil(b"done")
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(send_for_ever(writer), 20)
        writer.close()


async def send_for_ever(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"2710\r\n" + bytes(10_000) + b"\r\n")
        await writer.drain()


async def test_a_refusal_is_not_the_answer_to_the_request_before() -> None:
    async with serving(HttpLimits()) as (_, port):
        received = await answer(port, b"GET /wait HTTP/1.1\r\n\r\n" + b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n")
        assert received == b""


async def test_a_client_that_does_not_read_is_given_up() -> None:
    async with serving(HttpLimits(write_timeout_s=0.1)) as (application, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"POST /much HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n")
        await asyncio.wait_for(application.has_ended.wait(), 20)
        writer.close()


async def test_a_client_that_reads_slowly_is_waited_for_as_long_as_it_reads() -> None:
    loop, application = asyncio.get_running_loop(), Application()
    server = _Server(application, limits=HttpLimits(write_timeout_s=1000.0))
    task = asyncio.create_task(server.run_forever())
    await server.is_listening.wait()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.setblocking(False)
        await loop.sock_sendall(client, b"POST /whole HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n")
        await asyncio.wait_for(application.has_ended.wait(), 20)
        (connection,) = server.server_state.connections
        assert isinstance(connection, GuardedHttpProtocol)
        now_s, num_bytes = loop.time(), 0
        while num_bytes < 16 << 20:
            num_bytes += len(await loop.sock_recv(client, 1 << 20))
        for later_s, is_given_up in ((2000, False), (2900, False), (3100, True)):
            connection.end_if_slow(now_s + later_s)
            assert connection.transport.is_closing() == is_given_up
    await server.stop()
    await task


async def test_connections_beyond_the_limit_are_closed_and_others_go_on() -> None:
    """Each is a descriptor: where all are taken, no worker can be reached either."""
    request = HEAD + b"content-length: 0\r\n\r\n"
    async with serving(HttpLimits(max_connections=2)) as (_, port):
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in kept:
            writer.write(request)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        reader, beyond = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionResetError):
            assert await reader.read(1) == b""
        beyond.close()
        kept[0][1].close()
        await kept[0][1].wait_closed()
        status = b""
        async with asyncio.timeout(20):
            while not status:  # the server hears of it a moment later
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request)
                with suppress(ConnectionResetError):
                    status = await reader.readline()
                writer.close()
        assert status.startswith(b"HTTP/1.1 200")
        kept[1][1].close()


def test_large_bodies_share_bounded_memory_and_small_ones_are_always_taken() -> None:
    memory = BodyMemory(1000, small_bytes=100)
    with memory.hold() as first, memory.hold() as second, memory.hold() as small:
        first(600)
        first(900)
        small(100)
        with pytest.raises(ResourceExhaustedError, match="1000 bytes"):
            second(101)
    with memory.hold() as second:
        second(1000)
