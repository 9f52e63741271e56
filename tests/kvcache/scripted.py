"""A worker whose cache changes, and whose event stream fails, on command."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from headway.core.load import LoadReport
from headway.store.redis import Database
from headway.v1 import worker_pb2
from tests.router.scripted import IDLE, ScriptedWorker

STORED, REMOVED = worker_pb2.BlockEvent.KIND_STORED, worker_pb2.BlockEvent.KIND_REMOVED


class CachingWorker(ScriptedWorker):
    """Streams block events as a worker does: changes since the number asked for, or a snapshot.

    Attributes:
        held: what the worker really holds.
        requests: (epoch, sequence number) that streams were asked to start after.
    """

    def __init__(self, database: Database, worker_id: str, *, load: LoadReport = IDLE, rank: int = 0) -> None:
        super().__init__(database, worker_id, load=load, rank=rank)
        self.held: dict[bytes, None] = {}
        self.requests: list[tuple[str, int]] = []
        self._epoch = f"epoch-1-of-{worker_id}"
        self._log: list[worker_pb2.BlockEvent] = []
        self._stored_or_removed = asyncio.Event()
        self._is_cut = False

    def cut_stream(self) -> None:
        """Breaks the event stream that is open; the worker lives on."""
        self._is_cut = True
        self._append(STORED, ())

    def store(self, *block_hashes: bytes) -> None:
        self.held |= dict.fromkeys(block_hashes)
        self._append(STORED, block_hashes)

    def remove(self, *block_hashes: bytes) -> None:
        for block_hash in block_hashes:
            del self.held[block_hash]
        self._append(REMOVED, block_hashes)

    def lose_silently(self, block_hash: bytes) -> None:
        """Drops a block without saying so: a bug of the worker's."""
        del self.held[block_hash]

    def skip_events(self, num: int) -> None:
        """Numbers events that the stream never carries."""
        self._log += [worker_pb2.BlockEvent()] * num

    def start_anew(self) -> None:
        """Empties the cache, as when another model is loaded, without ending the stream."""
        self._epoch += "'"
        self.held.clear()
        self._log.clear()
        self._append(STORED, ())

    async def WatchBlocks(  # noqa: N802
        self, request: worker_pb2.WatchBlocksRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[worker_pb2.WatchBlocksResponse]:
        known = {position.epoch: position.after_sequence_number for position in request.others}
        self.requests.append((max(known, default=""), max(known.values(), default=0)))
        epoch, number = self._epoch, known.get(self._epoch, 0)
        if number == 0:
            number = len(self._log)
            yield self._message(number, [worker_pb2.BlockEvent(kind=STORED, block_hash=key) for key in self.held])
        while True:
            changed = self._stored_or_removed
            if epoch != self._epoch:
                epoch, number = self._epoch, 0
            if events := [event for event in self._log[number:] if event.block_hash]:
                number = len(self._log)
                yield self._message(number, events, snapshot=False)
            await changed.wait()
            if self._is_cut:
                self._is_cut = False
                await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")

    def _append(self, kind: "worker_pb2.BlockEvent.Kind.ValueType", block_hashes: tuple[bytes, ...]) -> None:
        self._log += [worker_pb2.BlockEvent(kind=kind, block_hash=block_hash) for block_hash in block_hashes]
        self._stored_or_removed.set()
        self._stored_or_removed = asyncio.Event()

    def _message(
        self, number: int, events: list[worker_pb2.BlockEvent], *, snapshot: bool = True
    ) -> worker_pb2.WatchBlocksResponse:
        return worker_pb2.WatchBlocksResponse(
            model=self._load.model, epoch=self._epoch, sequence_number=number, snapshot=snapshot, events=events
        )
