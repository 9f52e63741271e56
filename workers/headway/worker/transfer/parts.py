"""Blocks as messages: several small ones in one, a large one in several."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headway.core.errors import InternalError
from headway.worker.transfer.block import BlockContent

MAX_MESSAGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BlockPart:
    """A piece of one block that fits into a message."""

    name: bytes
    offset_bytes: int
    content: bytes


def split(blocks: Iterable[BlockContent], *, max_bytes: int = MAX_MESSAGE_BYTES) -> Iterator[list[BlockPart]]:
    """Messages of at most `max_bytes` each."""
    message: list[BlockPart] = []
    room = max_bytes
    for block in blocks:
        offset = 0
        while offset < len(block.content):
            piece = block.content[offset : offset + room].tobytes()
            message.append(BlockPart(block.name, offset, piece))
            offset += len(piece)
            room -= len(piece)
            if room == 0:
                yield message
                message, room = [], max_bytes
    if message:
        yield message


class Joiner:
    """Puts the parts of one stream together again.

    Args:
        block_bytes: of every block.
    """

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._name = b""
        self._content = memoryview(b"")
        self._num_bytes = 0

    def join(self, parts: Iterable[BlockPart]) -> list[BlockContent]:
        """The blocks that are whole with these parts.

        Raises:
            InternalError: parts are missing, or too long.
        """
        whole = []
        for part in parts:
            if part.offset_bytes == 0:
                self._name, self._num_bytes = part.name, 0
                self._content = memoryview(bytearray(self._block_bytes))
            end = part.offset_bytes + len(part.content)
            if part.name != self._name or part.offset_bytes != self._num_bytes or end > self._block_bytes:
                raise InternalError("The parts of a block do not fit together.")
            self._content[part.offset_bytes : end] = part.content
            self._num_bytes = end
            if end == self._block_bytes:
                whole.append(BlockContent(self._name, self._content))
        return whole
