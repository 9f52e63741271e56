"""The events of vLLM's prefix cache, as its engine process publishes them."""

import asyncio
import logging
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio
from vllm.config.kv_events import KVEventsConfig
from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch

from headway.worker.vllm.block_names import BlockNames

log = logging.getLogger(__name__)

_FULL_ATTENTION = (None, "full_attention")


class BlockFeed:
    """Reads the events of one engine process.

    Args:
        directory: of the socket; its path must be short.
    """

    def __init__(self, directory: Path) -> None:
        self._endpoint = f"ipc://{directory / 'events'}"
        self._decoder = msgspec.msgpack.Decoder(type=KVEventBatch)
        self._socket: zmq.asyncio.Socket | None = None
        self._reading: asyncio.Task[None] | None = None
        self._next_number = 0

    @property
    def config(self) -> KVEventsConfig:
        """What has vLLM publish them."""
        return KVEventsConfig(enable_kv_cache_events=True, publisher="zmq", endpoint=self._endpoint)

    def start(self, names: BlockNames) -> None:
        """Reads what is published until `stop`."""
        self._socket = zmq.asyncio.Context.instance().socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt_string(zmq.SUBSCRIBE, "")
        self._socket.connect(self._endpoint)
        self._reading = asyncio.create_task(self._read(self._socket, names), name="vllm-block-events")

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._socket is not None:
            self._socket.close(linger=0)

    async def _read(self, socket: zmq.asyncio.Socket, names: BlockNames) -> None:
        while True:
            _, number, payload = await socket.recv_multipart()
            self._check_number(int.from_bytes(number, "big"), names)
            for event in self._decoder.decode(payload).events:
                _apply(event, names)

    def _check_number(self, number: int, names: BlockNames) -> None:
        """Forgets all where events were lost: what is not known to be there is computed again, and no worse."""
        if number != self._next_number:
            log.warning("events %d to %d of vLLM's cache were lost", self._next_number, number - 1)
            names.clear()
        self._next_number = number + 1


def _apply(event: object, names: BlockNames) -> None:
    if isinstance(event, BlockStored):
        if event.kv_cache_spec_kind in _FULL_ATTENTION:
            keys = (event.extra_keys or [None])[0] or ()
            # An adapter's name comes first, and its requests always have a salt.
            salt = next((key for key in reversed(keys) if isinstance(key, str)), "")
            names.store(event.block_hashes, parent=event.parent_block_hash, token_ids=event.token_ids, salt=salt)
    elif isinstance(event, BlockRemoved):
        names.remove(event.block_hashes)
    elif isinstance(event, AllBlocksCleared):
        names.clear()
