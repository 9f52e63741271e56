"""Live migration: running sequences go on at another worker, after a pause of a few tokens.

    source    decode  decode  decode  decode | end
    target    fetch their blocks   fetch new | (the gateway submits them) compute the last tokens, decode ...

Blocks go while their sequences run, in rounds: each brings what became full during the one before. When a round leaves
no more than a block to each sequence the source ends them; whoever holds their streams submits them at the target with
all tokens so far. The target finds their blocks in its prefix cache, and computes the few tokens that are not there.
Until the end nothing has changed for them, so a fault leaves them where they are.
"""

import asyncio
from collections.abc import Sequence

from headway.core.engine_kind import Feature
from headway.core.errors import DeadlineExceededError, FailedPreconditionError, HeadwayError, NotFoundError
from headway.core.move import MoveTarget, RequestMove
from headway.worker.loaded_model import LoadedModel
from headway.worker.transfer.client import PeerWorkerClient
from headway.worker.transfer.fetch import Fetched

_MAX_ROUNDS = 16
_TIMEOUT_S = 60.0


class Migrator:
    """Moves sequences of one worker to others."""

    def __init__(self, worker_id: str, loaded: LoadedModel, *, client: PeerWorkerClient) -> None:
        self._worker_id = worker_id
        self._loaded = loaded
        self._thread = loaded.own_engine(Feature.BLOCK_TRANSFER).thread
        self._client = client

    async def move(self, request_ids: Sequence[str], *, target: MoveTarget) -> RequestMove:
        """Moves those of the sequences that have not ended.

        Raises:
            NotFoundError: all of them have ended.
            FailedPreconditionError: one is a beam search.
            HeadwayError: the target is lost or has no room. They go on here.
        """
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                fetched, reason = await self._bring_blocks(request_ids, target)
                num_sequences = await self._loaded.sessions.hand_over(request_ids, worker_id=target.worker_id)
        except TimeoutError:
            self._loaded.transfers.observe_move("failed")
            raise DeadlineExceededError(f"The request could not be moved within {_TIMEOUT_S:.0f} s.") from None
        except HeadwayError:
            self._loaded.transfers.observe_move("failed")
            raise
        if num_sequences == 0:
            raise NotFoundError("The request has ended.", field="request_id")
        self._loaded.transfers.observe_move("recomputed" if reason else "moved", num_sequences=num_sequences)
        return RequestMove(
            worker_id=self._worker_id,
            num_sequences=num_sequences,
            num_blocks=fetched.num_blocks,
            num_bytes=fetched.num_bytes,
            recompute_reason=reason,
        )

    async def _bring_blocks(self, request_ids: Sequence[str], target: MoveTarget) -> tuple[Fetched, str]:
        """Has the target fetch the sequences' blocks. Returns what it fetched, and why it must compute all tokens
        itself, if it must.
        """
        fetched, brought = Fetched(), set[bytes]()
        for number in range(_MAX_ROUNDS):
            chains = await self._thread.call(lambda engine: engine.kv_transfer.chains(request_ids))
            num_new = len(set[bytes]().union(*chains) - brought)
            if number and num_new <= len(chains):
                break
            try:
                fetched += await self._client.fetch_from_here(
                    target.endpoint, model=self._loaded.order.model, chains=chains, num_sequences=len(chains)
                )
            except FailedPreconditionError as error:
                return Fetched(), error.message
            brought.update(*chains)
        return fetched, ""
