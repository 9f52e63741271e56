"""A view of the blocks that hold one request's keys and values, and of who shares them."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from headway.engine.group import SequenceGroup
from headway.engine.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """One block of a sequence's block table.

    Attributes:
        block: the block's number, in the device pool or in the host tier.
        is_on_host: whether it lies in the host tier.
        num_tokens: how many computed tokens of this sequence it holds.
        shared_with: labels of the other sequences, of any request, whose tables name it too.
    """

    block: int
    is_on_host: bool
    num_tokens: int
    shared_with: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceTable:
    """The block table of one sequence.

    Attributes:
        label: its request id; for a beam, with its rank behind it: "cmpl-1/beam-0" is the best one.
        status: waiting, running or swapped.
    """

    label: str
    status: str
    num_prompt_tokens: int
    num_tokens: int
    num_computed_tokens: int
    entries: tuple[TableEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBlocks:
    """The tables of all sequences of the group that a request belongs to.

    Attributes:
        request_id: as asked for.
        num_preemptions: how often the group gave way.
        num_common_tokens: leading tokens that the first sequence computes for the others, None once they have forked.
    """

    request_id: str
    num_preemptions: int
    num_common_tokens: int | None
    tables: tuple[SequenceTable, ...]


def request_blocks(
    request_id: str, *, group: SequenceGroup, groups: Iterable[SequenceGroup], block_size: int
) -> RequestBlocks:
    """Describes a group, given all groups. Takes time proportional to all block tables."""
    owners: dict[tuple[bool, int], list[str]] = defaultdict(list)
    for other in groups:
        for label, sequence in _labelled(other):
            for key in _keys(sequence):
                owners[key].append(label)
    tables = tuple(_table(label, sequence, owners, block_size) for label, sequence in _labelled(group))
    return RequestBlocks(
        request_id=request_id,
        num_preemptions=group.num_preemptions,
        num_common_tokens=group.num_common_tokens,
        tables=tables,
    )


def _labelled(group: SequenceGroup) -> list[tuple[str, Sequence]]:
    if group.beams is None:
        return [(sequence.request_id, sequence) for sequence in group.sequences]
    return [(f"{sequence.request_id}/beam-{rank}", sequence) for rank, sequence in enumerate(group.sequences)]


def _keys(sequence: Sequence) -> list[tuple[bool, int]]:
    """(whether it is on the host, its number) of each block in the sequence's table."""
    on_host = bool(sequence.host_block_table)
    return [(on_host, block) for block in sequence.host_block_table or sequence.block_table]


def _table(label: str, sequence: Sequence, owners: dict[tuple[bool, int], list[str]], block_size: int) -> SequenceTable:
    entries = tuple(
        TableEntry(
            block=key[1],
            is_on_host=key[0],
            num_tokens=min(block_size, max(0, sequence.num_computed_tokens - index * block_size)),
            shared_with=tuple(owner for owner in owners[key] if owner != label),
        )
        for index, key in enumerate(_keys(sequence))
    )
    return SequenceTable(
        label=label,
        status=sequence.status.name.lower(),
        num_prompt_tokens=sequence.num_prompt_tokens,
        num_tokens=len(sequence),
        num_computed_tokens=sequence.num_computed_tokens,
        entries=entries,
    )
