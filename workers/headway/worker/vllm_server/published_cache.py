"""What a server's prefix cache holds, by the events that it publishes."""

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

from headway.core.block_hash import block_hashes
from headway.core.errors import FailedPreconditionError
from headway.engine.events import BlockEventLog
from headway.worker.vllm.block_feed import BlockFeed
from headway.worker.vllm.block_names import BlockNames
from headway.worker.vllm_server.wire import told_salt

_FIELD = "--engine-events"
_GREETING = b"\xff"
"""The first byte that a ZeroMQ socket sends (ZMTP 3.1, section 3.1)."""
_CONNECT_TIMEOUT_S = 5.0
_MAX_SALTS = 65_536


class PublishedCache:
    """Implements `ServerCache`. It knows of all requests of the server, whoever sent them, from its start on; of blocks
    from before nothing, until they are stored anew."""

    def __init__(self, log: BlockEventLog, *, endpoint: str, block_size: int) -> None:
        self._names = BlockNames(log, block_size=block_size)
        self._salts: dict[str, str] = {}
        self._feed = BlockFeed(endpoint, salts=self._salts)
        self._block_size = block_size

    @property
    def num_blocks(self) -> int:
        return self._names.num_blocks

    def start(self) -> None:
        self._feed.start(self._names)

    async def stop(self) -> None:
        await self._feed.stop()

    def num_found(self, token_ids: Sequence[int], *, salt: str = "") -> int:
        if salt:
            self._salts[told_salt(salt)] = salt
            if len(self._salts) > _MAX_SALTS:
                del self._salts[next(iter(self._salts))]
        num_found = 0
        for name in block_hashes(token_ids[:-1], block_size=self._block_size, salt=salt.encode()):
            if name not in self._names:
                break
            num_found += self._block_size
        return num_found

    def store(self, token_ids: Sequence[int], *, salt: str = "") -> None:
        """The server tells itself."""


async def check_publishes(endpoint: str) -> None:
    """FailedPreconditionError where no ZeroMQ socket listens at `tcp://HOST:PORT`: who subscribes would never know."""
    address = urlsplit(endpoint)
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            greeting = await reader.read(1)
            writer.close()
    except (OSError, TimeoutError):
        greeting = b""
    if greeting != _GREETING:
        config = '{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:PORT"}'
        raise FailedPreconditionError(
            f"No server publishes the events of its cache at {endpoint}.",
            hint=f"Start vLLM with --kv-events-config '{config}', or leave {_FIELD} out.",
            field=_FIELD,
        )
