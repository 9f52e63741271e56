"""Emptying a worker: everything that runs on it moves to others."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle

from headway.core.engine_kind import Feature
from headway.core.errors import ErrorCode, HeadwayError
from headway.core.move import MoveTarget
from headway.worker.loaded_model import LoadedModel
from headway.worker.transfer.migrator import Migrator

log = logging.getLogger(__name__)

_NUM_AT_ONCE = 4
_RETRY_S = 0.5


class Drain:
    """Moves sequences to targets in turn, and again those that found no room, until none is left.

    Beam searches end where they are.

    Attributes:
        num_moved: sequences.
    """

    def __init__(self, loaded: LoadedModel, mover: Migrator, *, targets: Sequence[MoveTarget]) -> None:
        self.num_moved = 0
        self._loaded = loaded
        self._thread = loaded.own_engine(Feature.BLOCK_TRANSFER).thread
        self._mover = mover
        self._targets = cycle(targets)
        self._places = asyncio.Semaphore(_NUM_AT_ONCE)

    async def run(self) -> None:
        """Returns when nothing runs any more."""
        sessions = self._loaded.sessions
        while not sessions.is_idle:
            groups = await self._thread.call(lambda engine: engine.kv_transfer.groups())
            await asyncio.gather(*(self._move(request_ids) for request_ids in groups))
            with suppress(TimeoutError):
                await asyncio.wait_for(sessions.wait_until_idle(), _RETRY_S)

    async def _move(self, request_ids: Sequence[str]) -> None:
        async with self._places:
            try:
                move = await self._mover.move(request_ids, target=next(self._targets))
            except HeadwayError as error:
                if error.code is not ErrorCode.NOT_FOUND:
                    log.info("%s stays for now: %s", request_ids[0], error)
            else:
                self.num_moved += move.num_sequences
