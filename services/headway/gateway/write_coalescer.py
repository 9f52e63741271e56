"""Coalesces writes: what connections send in one round of the event loop is sent back to back at its end.

An engine step brings a token for each of many streams. Where each were sent as soon as it is ready, a client would be
woken for every single one, and be asleep again before the next: on a machine that is busy with other things waking is
a good part of what a token costs. Behind one another they find it awake.
"""

import asyncio
from typing import Any


class WriteCoalescer:
    """Collects the writes of one event loop's connections and sends them together."""

    def __init__(self) -> None:
        self._waiting: list[BatchedTransport] = []

    def add(self, transport: "BatchedTransport") -> None:
        """Flushes the transport when those have had their turn that are ready to run by now."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append(transport)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for transport in waiting:
            transport.flush()


class BatchedTransport:
    """A transport whose writes wait for the end of the round; several are sent as one. All else is the transport's."""

    __slots__ = ("_add", "_pieces", "_transport")

    def __init__(self, transport: asyncio.Transport, coalescer: WriteCoalescer) -> None:
        self._transport = transport
        self._add = coalescer.add
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        pieces = self._pieces
        if not pieces:
            self._add(self)
        pieces.append(data)

    def flush(self) -> None:
        """Sends what waits, unless the connection has ended meanwhile."""
        pieces, transport = self._pieces, self._transport
        if pieces and not transport.is_closing():
            transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        pieces.clear()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
