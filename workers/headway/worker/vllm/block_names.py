"""Blocks of vLLM's prefix cache under Headway's names. Pure."""

from collections.abc import Sequence

from headway.core.block_hash import block_hashes
from headway.engine.events import BlockEventLog


class BlockNames:
    """Follows what vLLM stores and drops, and tells the log.

    vLLM names a block by a hash of its own. The same tokens may lie in several of its blocks (each request that
    computes them at once stores its own), and count once here.

    Args:
        block_size: tokens in a block.
    """

    def __init__(self, log: BlockEventLog, *, block_size: int) -> None:
        self._log = log
        self._block_size = block_size
        self._names: dict[object, bytes] = {}  # by vLLM's own
        self._num_copies: dict[bytes, int] = {}

    @property
    def num_blocks(self) -> int:
        return len(self._num_copies)

    def __contains__(self, name: bytes) -> bool:
        return name in self._num_copies

    def store(
        self, hashes: Sequence[object], *, parent: object | None, token_ids: Sequence[int], salt: str = ""
    ) -> None:
        """Takes in consecutive blocks. Those behind a parent that is not known (any more) are left out: nobody could
        find them."""
        parent_name = b"" if parent is None else self._names.get(parent)
        if parent_name is None:
            return
        names = block_hashes(token_ids, block_size=self._block_size, salt=salt.encode(), parent=parent_name)
        for own, name in zip(hashes, names, strict=True):
            if own not in self._names:
                self._names[own] = name
                self._num_copies[name] = self._num_copies.get(name, 0) + 1
                if self._num_copies[name] == 1:
                    self._log.record_stored(name, parent_hash=parent_name)
            parent_name = name

    def remove(self, hashes: Sequence[object]) -> None:
        for own in hashes:
            name = self._names.pop(own, None)
            if name is None:
                continue
            self._num_copies[name] -= 1
            if self._num_copies[name] == 0:
                del self._num_copies[name]
                self._log.record_removed(name)

    def clear(self) -> None:
        self.remove(list(self._names))
