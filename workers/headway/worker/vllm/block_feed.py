"""The events of vLLM's prefix cache, as its engine process publishes them over ZeroMQ."""

import asyncio
import logging
from collections.abc import Mapping

import msgspec
import zmq
import zmq.asyncio

from headway.worker.vllm.block_names import BlockNames
from headway.worker.vllm.cache_events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch

log = logging.getLogger(__name__)

_FULL_ATTENTION = (None, "full_attention")


class BlockFeed:
    """Reads the events of one engine process.

    Args:
        endpoint: where it publishes them, `ipc://PATH` (a short one) or `tcp://HOST:PORT`.
        salts: ours, by what it knows them by; others are named as it names them.
    """

    def __init__(self, endpoint: str, *, salts: Mapping[str, str] | None = None) -> None:
        self.endpoint = endpoint
        self._salts = {} if salts is None else salts
        self._decoder = msgspec.msgpack.Decoder(type=EventBatch)
        self._socket: zmq.asyncio.Socket | None = None
        self._reading: asyncio.Task[None] | None = None
        self._next_number: int | None = None

    def start(self, names: BlockNames) -> None:
        """Reads what is published until `stop`."""
        self._socket = zmq.asyncio.Context.instance().socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt_string(zmq.SUBSCRIBE, "")
        self._socket.connect(self.endpoint)
        self._reading = asyncio.create_task(self._read(self._socket, names), name="vllm-block-events")

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._socket is not None:
            self._socket.close(linger=0)

    async def _read(self, socket: zmq.asyncio.Socket, names: BlockNames) -> None:
        while True:
            _, sequence, payload = await socket.recv_multipart()
            self._check_number(int.from_bytes(sequence, "big"), names)
            try:
                batch = self._decoder.decode(payload)
            except msgspec.DecodeError as error:
                log.warning("events of vLLM's cache cannot be read, all its blocks are forgotten: %s", error)
                names.clear()
                continue
            for event in batch.events:
                _apply(event, names, self._salts)

    def _check_number(self, number: int, names: BlockNames) -> None:
        """Forgets all where events were lost: what is not known to be there is computed again, and no worse. Those from
        before it began to read are not missed: blocks that follow on theirs have no name here."""
        if self._next_number is not None and number != self._next_number:
            log.warning("events %d to %d of vLLM's cache were lost", self._next_number, number - 1)
            names.clear()
        self._next_number = number + 1


def _apply(event: object, names: BlockNames, salts: Mapping[str, str]) -> None:
    if isinstance(event, BlockStored):
        if event.kv_cache_spec_kind in _FULL_ATTENTION:
            keys = (event.extra_keys or [None])[0] or ()
            # An adapter's name comes first, and its requests always have a salt.
            salt = next((key for key in reversed(keys) if isinstance(key, str)), "")
            names.store(
                event.block_hashes,
                parent=event.parent_block_hash,
                token_ids=event.token_ids,
                salt=salts.get(salt, salt),
            )
    elif isinstance(event, BlockRemoved):
        names.remove(event.block_hashes)
    elif isinstance(event, AllBlocksCleared):
        names.clear()
