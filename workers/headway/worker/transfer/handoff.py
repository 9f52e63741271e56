"""Prefill here, decode there: sequences go on at another worker as soon as their prompt is computed.

    here     chunk | chunk | chunk, token | token | token, end
    there    fetch its blocks     fetch the last ones | (the gateway submits them) compute the last tokens, decode ...

Blocks go while later chunks are computed, so that few are left at the end. The first tokens after the prompt are made
here, until the others have arrived there: nobody waits for them. Nothing has changed for the sequences until they end
here, so where the other worker is lost or refuses they simply go on here.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from headway.core.engine_kind import Feature
from headway.core.errors import HeadwayError, ResourceExhaustedError
from headway.core.move import MoveTarget
from headway.engine.kv_transfer import SequenceProgress
from headway.worker.loaded_model import LoadedModel
from headway.worker.transfer.client import PeerWorkerClient

log = logging.getLogger(__name__)

_WAIT_S = 0.01
_RETRY_S = 0.5


class Handoff:
    """Hands the sequences of one prompt over from a prefill worker to a decode worker, blocks first."""

    def __init__(
        self, loaded: LoadedModel, request_ids: Sequence[str], *, target: MoveTarget, client: PeerWorkerClient
    ) -> None:
        self._loaded = loaded
        self._thread = loaded.own_engine(Feature.BLOCK_TRANSFER).thread
        self._request_ids = request_ids
        self._target = target
        self._client = client
        self._brought: set[bytes] = set()

    async def run(self) -> None:
        """Returns when they have gone, or have ended, or are to stay."""
        try:
            while self._loaded.sessions.knows(self._request_ids):
                await self._advance()
        except HeadwayError as error:
            self._loaded.transfers.observe_move("failed")
            log.info("%s stays: %s", self._request_ids[0], error)

    async def _advance(self) -> None:
        """Fetches the blocks that are new since the last step, or waits for the prefill to go on."""
        progress = await self._thread.call(lambda engine: engine.kv_transfer.progress(self._request_ids))
        if progress is None or not progress.has_begun:
            await asyncio.sleep(_WAIT_S)
        elif progress.is_decoding:
            await self._finish(progress)
        elif set[bytes]().union(*progress.chains) - self._brought:
            with suppress(ResourceExhaustedError):  # there may be room by the end
                await self._fetch(progress, num_sequences=0)
            self._brought.update(*progress.chains)

    async def _finish(self, progress: SequenceProgress) -> None:
        """Moves the sequences once their prompt is computed. What they compute meanwhile is less than a block each, and
        is computed again there.
        """
        try:
            await self._fetch(progress, num_sequences=len(progress.chains))
        except ResourceExhaustedError as error:
            log.debug("%s waits for room: %s", self._request_ids[0], error)
            await asyncio.sleep(_RETRY_S)
            return
        num_sequences = await self._loaded.sessions.hand_over(self._request_ids, worker_id=self._target.worker_id)
        self._loaded.transfers.observe_move("moved", num_sequences=num_sequences)

    async def _fetch(self, progress: SequenceProgress, *, num_sequences: int) -> None:
        await self._client.fetch_from_here(
            self._target.endpoint,
            model=self._loaded.order.model,
            chains=progress.chains,
            num_sequences=num_sequences,
        )
