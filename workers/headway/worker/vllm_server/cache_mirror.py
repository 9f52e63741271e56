"""What a server's prefix cache holds, by what was sent there. Pure."""

from collections import OrderedDict
from collections.abc import Sequence

from headway.core.block_hash import block_hashes
from headway.engine.events import BlockEventLog


class CacheMirror:
    """Implements `ServerCache` where the server publishes nothing. It does as vLLM's cache does: full blocks stay until
    the room is needed, those that were not used for longest go first, and of a sequence the last ones.

    It knows the blocks of one worker's requests. Where others send to the server too, some are gone that it still
    holds: their tokens are computed again, and no worse.

    Args:
        num_blocks: that the server has.
        is_caching: whether it keeps any.
    """

    def __init__(self, log: BlockEventLog, *, num_blocks: int, block_size: int, is_caching: bool = True) -> None:
        self._log = log
        self._capacity = num_blocks if is_caching else 0
        self._block_size = block_size
        self._blocks: OrderedDict[bytes, None] = OrderedDict()  # the next to go first

    @property
    def num_blocks(self) -> int:
        return len(self._blocks)

    def start(self) -> None:
        """It sees what is stored."""

    async def stop(self) -> None:
        """Nothing runs."""

    def num_found(self, token_ids: Sequence[int], *, salt: str = "") -> int:
        """Leading tokens of a prompt that are there; its last one is always computed."""
        num_found = 0
        for name in self._names(token_ids[:-1], salt):
            if name not in self._blocks:
                break
            num_found += self._block_size
        return num_found

    def store(self, token_ids: Sequence[int], *, salt: str = "") -> None:
        """These tokens have been computed, one after the other from the first."""
        if not self._capacity:
            return
        names = self._names(token_ids, salt)
        parent = b""
        for name in names:
            if name not in self._blocks:
                self._blocks[name] = None
                self._log.record_stored(name, parent_hash=parent)
            parent = name
        for name in reversed(names):
            self._blocks.move_to_end(name)
        num_partial = min(1, len(token_ids) % self._block_size)
        while len(self._blocks) + num_partial > self._capacity:
            gone, _ = self._blocks.popitem(last=False)
            self._log.record_removed(gone)

    def _names(self, token_ids: Sequence[int], salt: str) -> list[bytes]:
        return block_hashes(token_ids, block_size=self._block_size, salt=salt.encode())
