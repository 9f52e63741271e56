"""gRPC clients that send a call and not its message: each harms itself, and without a key nothing of it is read."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from headway.core.errors import UnauthenticatedError
from headway.gateway.message_limits import MessageLimits, Metadata
from headway.rpc.interceptors import CallInterceptor
from headway.v1 import inference_pb2, inference_pb2_grpc
from tests.gateway.test_guard import KEY
from tests.gateway.world import MODEL, Gateway

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
TOKENIZE = "/headway.v1.InferenceService/Tokenize"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def half_call(stream: int, path: str, metadata: Metadata) -> bytes:
    """The headers of a call, and half of its message."""
    headers = [
        *((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "a")),
        *(("content-type", "application/grpc"), ("te", "trailers")),
        *metadata,
    ]
    block = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in headers
    )
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, 0, stream, b"\0" + struct.pack(">I", 100) + b"half")


def ended(connection: socket.socket, num: int) -> set[int]:
    """The first so many streams that the server ends."""
    found: set[int] = set()
    with connection.makefile("rb") as received:
        while len(found) < num:
            head = received.read(9)
            assert len(head) == 9, "the server has closed the connection"
            kind, flags, stream = struct.unpack(">BBI", head[3:])
            received.read(int.from_bytes(head[:3], "big"))
            if kind == HEADERS and flags & END_STREAM:
                found.add(stream)
    return found


def connected(endpoint: str) -> socket.socket:
    host, port = endpoint.split(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
    return connection


def test_without_a_key_no_message_is_waited_for(guarded: Gateway) -> None:
    streams = range(1, 21, 2)
    with connected(guarded.grpc_endpoint) as connection:
        connection.sendall(b"".join(half_call(stream, TOKENIZE, []) for stream in streams))
        assert ended(connection, len(streams)) == set(streams)


class Echo(inference_pb2_grpc.InferenceServiceServicer):
    async def Tokenize(self, request: Any, context: Any) -> inference_pb2.TokenizeResponse:  # noqa: N802
        return inference_pb2.TokenizeResponse(token_ids=[len(request.text)])


def tenant_of(metadata: Metadata) -> str:
    if (name := dict(metadata).get("tenant")) is None:
        raise UnauthenticatedError("Who is that?")
    return name


@asynccontextmanager
async def echoing(timeout_s: float) -> AsyncIterator[str]:
    limits = MessageLimits(tenant_of=tenant_of, timeout_s=timeout_s)
    server = grpc.aio.server(interceptors=[CallInterceptor(), limits])
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(Echo(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def tokenize(endpoint: str, tenant: str) -> list[int]:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        request = inference_pb2.TokenizeRequest(model=MODEL, text="abc")
        return list((await stub.Tokenize(request, metadata=[("tenant", tenant)], timeout=30)).token_ids)


async def test_half_messages_are_waited_for_so_long_and_hold_up_their_own_tenant_only() -> None:
    async with echoing(timeout_s=1000) as endpoint:
        with connected(endpoint) as connection:
            connection.sendall(b"".join(half_call(2 * i + 1, TOKENIZE, [("tenant", "one")]) for i in range(100)))
            assert await tokenize(endpoint, "two") == [3]
            with pytest.raises(grpc.aio.AioRpcError, match="DEADLINE_EXCEEDED"):
                async with asyncio.timeout(20):
                    await _late(endpoint, "one")
    async with echoing(timeout_s=0.1) as endpoint:
        with connected(endpoint) as connection:
            connection.sendall(half_call(1, TOKENIZE, [("tenant", "one")]))
            assert await asyncio.to_thread(ended, connection, 1) == {1}
        assert await tokenize(endpoint, "one") == [3]


async def _late(endpoint: str, tenant: str) -> None:
    """A call that its client waits half a second for."""
    async with grpc.aio.insecure_channel(endpoint) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        await stub.Tokenize(inference_pb2.TokenizeRequest(), metadata=[("tenant", tenant)], timeout=0.5)


def test_with_a_key_calls_are_answered_as_ever(guarded: Gateway) -> None:
    with grpc.insecure_channel(guarded.grpc_endpoint) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        metadata = [(name.lower(), value) for name, value in KEY.items()]
        assert stub.Tokenize(inference_pb2.TokenizeRequest(model=MODEL, text="abc"), metadata=metadata).token_ids
        with pytest.raises(grpc.RpcError) as caught:
            stub.Tokenize(inference_pb2.TokenizeRequest(model=MODEL, text="abc"))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
