"""Blocks as messages: any blocks come out as they went in."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.errors import InternalError
from headway.worker.transfer.block import BlockContent
from headway.worker.transfer.parts import BlockPart, Joiner, split


@settings(derandomize=True, deadline=None)
@given(block_bytes=st.integers(1, 40), num_blocks=st.integers(0, 12), max_bytes=st.integers(1, 50))
def test_blocks_come_out_as_they_went_in(block_bytes: int, num_blocks: int, max_bytes: int) -> None:
    draw = np.random.default_rng(num_blocks)
    blocks = [BlockContent(bytes([index]), memoryview(draw.bytes(block_bytes))) for index in range(num_blocks)]
    messages = list(split(blocks, max_bytes=max_bytes))
    sizes = [sum(len(part.content) for part in message) for message in messages]
    assert all(size == max_bytes for size in sizes[:-1])
    assert all(size <= max_bytes for size in sizes)
    joiner = Joiner(block_bytes)
    whole = [block for message in messages for block in joiner.join(message)]
    assert [block.name for block in whole] == [block.name for block in blocks]
    assert all(a.content == b.content for a, b in zip(whole, blocks, strict=True))


@pytest.mark.parametrize(
    "parts",
    [
        [BlockPart(b"a", 2, b"cd")],
        [BlockPart(b"a", 0, b"ab"), BlockPart(b"b", 2, b"cd")],
        [BlockPart(b"a", 0, b"ab"), BlockPart(b"a", 3, b"d")],
        [BlockPart(b"a", 0, b"abcde")],
    ],
    ids=["no start", "another block's", "a gap", "too long"],
)
def test_parts_that_do_not_fit_together_are_refused(parts: list[BlockPart]) -> None:
    with pytest.raises(InternalError, match="fit together"):
        Joiner(4).join(parts)
