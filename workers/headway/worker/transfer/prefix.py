"""Blocks of a prompt that another worker holds, fetched before the prompt is computed."""

import asyncio
import logging
import weakref
from collections.abc import Sequence
from typing import Protocol

from headway.core.block_hash import block_hashes
from headway.core.errors import HeadwayError
from headway.core.prefix_source import PrefixSource
from headway.core.request import GenerationRequest
from headway.worker.loaded_model import LoadedModel
from headway.worker.transfer.fetch import Fetched

log = logging.getLogger(__name__)


class Fetch(Protocol):
    """Brings the blocks of chains that are not here."""

    async def __call__(
        self, model: str, chains: Sequence[Sequence[bytes]], *, source_endpoint: str, num_sequences: int
    ) -> Fetched: ...


class PrefixFetches:
    """Prompts that begin alike wait for each other, so that what they have in common comes once."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._locks: weakref.WeakValueDictionary[bytes, asyncio.Lock] = weakref.WeakValueDictionary()

    async def bring(self, loaded: LoadedModel, request: GenerationRequest, source: PrefixSource) -> None:
        """Returns when the blocks are here, or could not be had in time: the prompt is computed from where they end."""
        model, block_size = loaded.order.model, loaded.order.block_size
        salt = request.cache_salt.encode()
        names = block_hashes(request.prompt_token_ids, block_size=block_size, salt=salt)[: source.num_blocks]
        if not names:
            return
        lock = self._locks.setdefault(names[0], asyncio.Lock())
        timeout = asyncio.timeout(source.timeout_s)
        try:
            async with timeout, lock:
                fetched = await self._fetch(model, [names], source_endpoint=source.endpoint, num_sequences=0)
        except (TimeoutError, HeadwayError) as error:  # a call that is cancelled may say so in either way
            loaded.transfers.observe_prefix("late" if timeout.expired() else "failed")
            log.info("a prefix could not be had of %s: %s", source.worker_id, error)
        else:
            loaded.transfers.observe_prefix("fetched", num_tokens=fetched.num_blocks * block_size)
