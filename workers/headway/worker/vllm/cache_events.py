"""The messages in which vLLM's prefix cache tells what it stores and drops, as vLLM 0.32 encodes them in MessagePack.
Fields that are not named here are ignored."""

from typing import Any

import msgspec


class BlockStored(msgspec.Struct, tag=True):
    """Consecutive blocks were stored.

    Attributes:
        block_hashes: vLLM's own names of them.
        parent_block_hash: of the block before the first; None where a sequence begins.
        token_ids: of all the blocks.
        extra_keys: what else names each block: an adapter, a salt; None for nothing.
        kv_cache_spec_kind: of attention; None where there is one kind only.
    """

    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    extra_keys: list[Any] | None = None
    kv_cache_spec_kind: str | None = None


class BlockRemoved(msgspec.Struct, tag=True):
    """Blocks were dropped."""

    block_hashes: list[int | bytes]


class AllBlocksCleared(msgspec.Struct, tag=True):
    """All blocks were dropped."""


class EventBatch(msgspec.Struct, array_like=True):
    """What is published at once, `published_s` by the clock of its machine."""

    published_s: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
