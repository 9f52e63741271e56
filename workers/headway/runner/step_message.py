"""The message by which a group's leader announces each step to the other ranks, and its encoding.

A message is int32 throughout: a header of 24 numbers, then the arrays one after the other. It fills a frame of fixed
size, which a rank can be ready to receive before it knows the length; what does not fit in follows by itself.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.engine.batch import StepBatch

FRAME_BYTES = 16384

_HEADER_SIZE = 24
_NUM_ARRAYS = 12
_FRAME_SIZE = FRAME_BYTES // 4

Words = NDArray[np.int32]


class StepKind(IntEnum):
    """The kind of a step message. STEP: copy and compute. HEAD: give the logits of the oldest step whose logits are
    wanted and not given yet; sent to stages before the last one, which does so by itself. SCRATCH: make a second pool,
    or with 0 blocks drop it. STOP: there is no next message. READ, WRITE: hand the leader what this rank has of some
    blocks, or take it. DROP: let a model go.
    """

    STEP = 0
    SCRATCH = 1
    STOP = 2
    READ = 3
    WRITE = 4
    HEAD = 5
    DROP = 6


@dataclass(frozen=True, slots=True)
class BlockCopies:
    """Pairs (source, destination), [n, 2]; carried out in this order: to the host, back from it, within the device."""

    out: Words
    into: Words
    within: Words

    @classmethod
    def of(cls, batch: StepBatch) -> "BlockCopies":
        if not (batch.swap_out or batch.swap_in or batch.block_copies):
            return NO_COPIES
        return cls(_pairs(batch.swap_out), _pairs(batch.swap_in), _pairs(batch.block_copies))


def _pairs(pairs: list[tuple[int, int]]) -> Words:
    return np.array(pairs, np.int32).reshape(-1, 2)


NO_COPIES: Final = BlockCopies(_pairs([]), _pairs([]), _pairs([]))


PENDING: Final = -1

_NOTHING: Final = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class ModelInput:
    """T tokens of B sequences; everything else that the network wants to know follows from this.

    Attributes:
        token_ids: [T], drafts included; `PENDING` where the step before samples the token, in a process that is alone.
        first_positions: [B], tokens that each sequence has computed before.
        counts: [B], tokens that it computes now.
        blocks: the blocks that its tokens up to the last of these lie in, sequence after sequence.
        sampled_rows: [S], the tokens whose logits give a next token: of each sequence that samples, its last known
            one and its drafts.
        best_rows: [N], such tokens too, of which nothing but the most likely next token is wanted.
        scored_rows: [R], the tokens whose logits give a prompt token's log probability.
        on_scratch: the blocks are those of the scratch pool.
        token_type_ids: [T], of an encoder, whose step has whole sequences and none of blocks and rows.
    """

    token_ids: Words
    first_positions: Words
    counts: Words
    blocks: Words
    sampled_rows: Words
    scored_rows: Words
    on_scratch: bool = False
    token_type_ids: Words = field(default_factory=lambda: _NOTHING)
    best_rows: Words = field(default_factory=lambda: _NOTHING)

    @property
    def is_decode(self) -> bool:
        """Whether each sequence has one token, of which no more is wanted than what follows it."""
        return len(self.token_ids) == len(self.counts) and len(self.scored_rows) == 0

    @property
    def wants_logits(self) -> bool:
        """Whether the head has anything to do."""
        return len(self.best_rows) + len(self.sampled_rows) + len(self.scored_rows) > 0


_NO_INPUT: Final = ModelInput(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING)


@dataclass(frozen=True, slots=True)
class StepMessage:
    """
    Attributes:
        facts: None where there is nothing to compute.
        blocks: [n, 2], to read or write: (block, whether it is of the host tier).
        model: the number of the one that it is about; heads are of whichever is next, and STOP is about all.
    """

    kind: StepKind
    copies: BlockCopies = NO_COPIES
    model_input: ModelInput | None = None
    num_scratch_blocks: int = 0
    blocks: Words = field(default_factory=lambda: NO_COPIES.within)
    model: int = 0


def encode(message: StepMessage, frame: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
    """Fills the frame, [FRAME_BYTES]; returns what did not fit in."""
    model_input, copies = message.model_input or _NO_INPUT, message.copies
    arrays = (
        model_input.token_ids,
        model_input.first_positions,
        model_input.counts,
        model_input.blocks,
        model_input.sampled_rows,
        model_input.scored_rows,
        copies.out.reshape(-1),
        copies.into.reshape(-1),
        copies.within.reshape(-1),
        message.blocks.reshape(-1),
        model_input.token_type_ids,
        model_input.best_rows,
    )
    words = np.concatenate((np.zeros(_HEADER_SIZE, np.int32), *arrays))
    sizes = [len(array) for array in arrays]
    header = [len(words), message.kind, message.model, model_input.on_scratch, message.num_scratch_blocks, *sizes]
    words[: len(header)] = header
    frame.view(np.int32)[: len(words)] = words[:_FRAME_SIZE]
    return words[_FRAME_SIZE:].view(np.uint8) if len(words) > _FRAME_SIZE else None


def rest_bytes(frame: NDArray[np.uint8]) -> int:
    """Returns how many bytes follow the frame; 0 if it holds everything."""
    num_words = int(frame.view(np.int32)[0])
    return max(num_words - _FRAME_SIZE, 0) * 4


def decode(frame: NDArray[np.uint8], rest: NDArray[np.uint8] | None) -> StepMessage:
    """The message; its arrays lie in the frame, or in a copy of it and the rest."""
    words = frame.view(np.int32)
    if rest is not None:
        words = np.concatenate((words, rest.view(np.int32)))
    num_words, kind, model, on_scratch, num_scratch_blocks, *sizes = words[: 5 + _NUM_ARRAYS].tolist()
    ends = np.cumsum([_HEADER_SIZE, *sizes])
    assert ends[-1] == num_words, "the arrays fill the message"
    token_ids, first_positions, counts, blocks, sampled_rows, scored_rows, *pairs, token_type_ids, best_rows = (
        words[start:end] for start, end in pairwise(ends)
    )
    model_input = ModelInput(
        token_ids,
        first_positions,
        counts,
        blocks,
        sampled_rows,
        scored_rows,
        on_scratch=bool(on_scratch),
        token_type_ids=token_type_ids,
        best_rows=best_rows,
    )
    *copies, blocks = (array.reshape(-1, 2) for array in pairs)
    return StepMessage(
        StepKind(kind), BlockCopies(*copies), model_input if len(counts) else None, num_scratch_blocks, blocks, model
    )
