"""Writes that wait for the end of a round: all arrive, in order, whatever becomes of the other connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from headway.gateway.write_coalescer import BatchedTransport, WriteCoalescer


class Sender(asyncio.Protocol):
    """The server's side of a connection; counts what its transport was given."""

    def __init__(self, coalescer: WriteCoalescer) -> None:
        self._coalescer = coalescer
        self.sizes: list[int] = []
        self.is_connected = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.raw = cast("asyncio.Transport", transport)
        self.transport = BatchedTransport(cast("asyncio.Transport", Counted(self.raw, self.sizes)), self._coalescer)
        self.is_connected.set()


class Counted:
    """A transport that notes each write."""

    def __init__(self, transport: asyncio.Transport, sizes: list[int]) -> None:
        self._transport, self._sizes = transport, sizes

    def write(self, data: bytes) -> None:
        self._sizes.append(len(data))
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()


@asynccontextmanager
async def connected(num: int) -> AsyncIterator[list[tuple[Sender, asyncio.StreamReader]]]:
    coalescer, pairs, writers = WriteCoalescer(), [], []
    senders = [Sender(coalescer) for _ in range(num)]
    accept = iter(senders).__next__
    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for sender in senders:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        await sender.is_connected.wait()
        pairs.append((sender, reader))
    try:
        yield pairs
    finally:
        for writer in writers:
            writer.close()
        server.close()


async def test_writes_of_a_round_are_one_and_in_order() -> None:
    async with connected(1) as [(sender, reader)]:
        for piece in (b"a", b"bc", b"def"):
            sender.transport.write(piece)
        assert sender.sizes == [], "the round is not over"
        assert await reader.readexactly(6) == b"abcdef"
        sender.transport.write(b"g")
        assert await reader.readexactly(1) == b"g"
    assert sender.sizes == [6, 1]


async def test_what_is_ready_in_a_round_is_sent_behind_it() -> None:
    """Tasks that one event has made ready all run before the first of them sends."""
    async with connected(5) as pairs:
        sent_before: list[int] = []

        async def answer(sender: Sender) -> None:
            sent_before.append(sum(len(other.sizes) for other, _ in pairs))
            sender.transport.write(b"token")

        await asyncio.gather(*(answer(sender) for sender, _ in pairs))
        assert [await reader.readexactly(5) for _, reader in pairs] == [b"token"] * 5
    assert sent_before == [0] * 5


async def test_closing_sends_what_waits_first() -> None:
    async with connected(1) as [(sender, reader)]:
        sender.transport.write(b"last words")
        sender.transport.close()
        assert await reader.read() == b"last words"


async def test_a_connection_that_ends_meanwhile_does_not_hold_up_the_others() -> None:
    async with connected(3) as [(first, _), (lost, _), (third, third_reader)]:
        for sender in (first, lost, third):
            sender.transport.write(b"x")
        lost.raw.abort()
        assert await third_reader.readexactly(1) == b"x"
        assert (first.sizes, lost.sizes) == ([1], [])
        lost.transport.write(b"y")
        await asyncio.sleep(0.01)
        assert lost.sizes == []


async def test_the_rest_is_the_transports_own() -> None:
    async with connected(1) as [(sender, _)]:
        assert not sender.transport.is_closing()
        sender.raw.abort()
        assert sender.transport.is_closing()
