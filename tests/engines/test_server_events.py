"""The events of a server's prefix cache, over real sockets: what vLLM 0.32 encodes, and what goes wrong on the way."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio

from headway.core.block_hash import block_hashes
from headway.core.errors import FailedPreconditionError
from headway.engine.events import BlockEventLog
from headway.worker.vllm_server.published_cache import PublishedCache, check_publishes

SIZE = 2
TOLD = bytes.fromhex(
    "93cb3ff8000000000000948ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392c40461616161c40462626262b1"
    "706172656e745f626c6f636b5f68617368c0a9746f6b656e5f6964739401020304aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d"
    "656469756da3475055a96c6f72615f6e616d65c0aa65787472615f6b6579739291a674656e616e74c0a967726f75705f69647800b26b765f"
    "63616368655f737065635f6b696e64ae66756c6c5f617474656e74696f6e88a474797065ab426c6f636b53746f726564ac626c6f636b5f68"
    "61736865739107b1706172656e745f626c6f636b5f68617368c40462626262a9746f6b656e5f696473920506aa626c6f636b5f73697a6502"
    "a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c084a474797065ac426c6f636b52656d6f766564ac626c6f636b"
    "5f68617368657391c40461616161a66d656469756da3475055a967726f75705f6964780081a474797065b0416c6c426c6f636b73436c6561"
    "72656400"
)
"""As vLLM 0.32 encoded it: two blocks of a tenant's prompt and one behind them are stored; the first is dropped, then
all are."""


class Publisher:
    """A socket that publishes as vLLM's engine does."""

    def __init__(self) -> None:
        self._socket = zmq.asyncio.Context.instance().socket(zmq.XPUB)  # tells who subscribes
        self.endpoint = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        self._number = 40  # it has run for a while

    async def subscribed(self) -> None:
        async with asyncio.timeout(60):
            assert await self._socket.recv() == b"\x01"

    async def publish(self, payload: bytes) -> None:
        await self._socket.send_multipart([b"", self._number.to_bytes(8, "big"), payload])
        self._number += 1

    async def tell(self, *events: dict[str, Any]) -> None:
        await self.publish(msgspec.msgpack.encode([0.0, events, 0]))

    def lose(self) -> None:
        """A message never arrives."""
        self._number += 1

    def close(self) -> None:
        self._socket.close(linger=0)


@pytest.fixture
async def publisher() -> Any:
    made = Publisher()
    yield made
    made.close()


def stored(*hashes: int, tokens: list[int], parent: int | None = None) -> dict[str, Any]:
    base = {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens}
    return base | {"block_size": SIZE, "lora_id": None, "medium": "CPU", "lora_name": None}


def names(tokens: list[int], salt: str = "") -> list[bytes]:
    return block_hashes(tokens, block_size=SIZE, salt=salt.encode())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.005)


async def test_what_vllm_encodes_is_read(publisher: Publisher) -> None:
    log = BlockEventLog()
    cache = PublishedCache(log, endpoint=publisher.endpoint, block_size=SIZE)
    cache.start()
    await publisher.subscribed()
    await publisher.publish(TOLD)
    await publisher.tell(stored(1, tokens=[9, 9]))
    await until(lambda: cache.num_blocks == 1)
    told = names([1, 2, 3, 4, 5, 6], "tenant")
    batch = log.since(0)
    assert batch is not None
    assert [each.block_hash for each in batch.events] == [*told, told[0], *told[1:], *names([9, 9])]
    await cache.stop()


async def test_the_cache_is_known_whoever_used_it(publisher: Publisher) -> None:
    log = BlockEventLog()
    cache = PublishedCache(log, endpoint=publisher.endpoint, block_size=SIZE)
    cache.start()
    await publisher.subscribed()
    await publisher.tell(stored(1, 2, tokens=[1, 2, 3, 4]), stored(8, tokens=[7, 7], parent=99))
    await until(lambda: cache.num_blocks == 2)  # what follows on a block from before has no name
    assert cache.num_found([1, 2, 3, 4, 5]) == 4
    assert cache.num_found([1, 2, 3, 4]) == 2  # the last token is always computed
    assert cache.num_found([1, 2, 3, 4, 5], salt="another's") == 0
    cache.store([5, 6])  # of which the server tells itself
    assert cache.num_blocks == 2
    await publisher.tell({"type": "BlockRemoved", "block_hashes": [1], "medium": "CPU"})
    await until(lambda: cache.num_blocks == 1)
    assert cache.num_found([1, 2, 3, 4, 5]) == 0
    await cache.stop()


@pytest.mark.parametrize("is_lost", [True, False], ids=["a message that is lost", "one that cannot be read"])
async def test_where_events_are_missing_all_is_forgotten_and_reading_goes_on(
    publisher: Publisher, is_lost: bool
) -> None:
    cache = PublishedCache(BlockEventLog(), endpoint=publisher.endpoint, block_size=SIZE)
    cache.start()
    await publisher.subscribed()
    await publisher.tell(stored(1, tokens=[1, 2]))
    await until(lambda: cache.num_blocks == 1)
    if is_lost:
        publisher.lose()
    else:
        await publisher.publish(b"\xc1")
    await publisher.tell(stored(2, tokens=[3, 4]))
    await until(lambda: cache.num_found([3, 4, 5]) == SIZE)
    assert cache.num_found([1, 2, 3]) == 0
    await cache.stop()


async def test_an_endpoint_where_nobody_publishes_is_refused(publisher: Publisher) -> None:
    await check_publishes(publisher.endpoint)
    other = await asyncio.start_server(lambda _, writer: writer.write(b"HTTP/1.1 400\r\n"), "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    for endpoint in ("tcp://127.0.0.1:1", f"tcp://127.0.0.1:{port}"):
        with pytest.raises(FailedPreconditionError, match=f"No server publishes .* at {endpoint}") as refused:
            await check_publishes(endpoint)
        assert "--kv-events-config" in refused.value.hint
    other.close()
