"""How a value comes from the ranks that made it to those that read it, by tiles (Alpa's cross-mesh resharding). Pure.

Of ranks that want the same each is sent a part, all as equal as can be, and they gather the parts among themselves:
nothing is sent twice from the makers to the readers. Each tile comes from a rank that has it: the reader itself, or the
one that sent least.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from headway.core.execution.execution import Slot, ValueSpec
from headway.core.execution.regions import Region, lengths, num_elements, overlap, split
from headway.core.graph import dtype_bytes


@dataclass(frozen=True, slots=True)
class Tile:
    """Attributes:
    slot: that its holders have.
    holders: ranks.
    """

    slot: Slot
    holders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a tile for one rank.

    Attributes:
        slot: what is sent, as the receiver keeps it.
        source: what the owner has.
        owner: its rank; the receiver's own where nothing is sent.
    """

    slot: Slot
    source: Slot
    owner: int


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank of a group is brought.

    Attributes:
        slot: what it puts together.
    """

    slot: Slot
    pieces: tuple[Piece, ...]


@dataclass
class Crossing:
    """Attributes:
    sent_bytes: by rank so far.
    """

    sent_bytes: dict[int, int] = field(default_factory=dict)

    def shares(self, value: ValueSpec, wanted: Slot, group: Sequence[int], tiles: Sequence[Tile]) -> list[Share]:
        """Of each rank of a group that wants the same slot what it is brought: the slot, or a part that it is to be
        gathered of.

        Args:
            tiles: that have all of it between them, each element once.
        """
        region = value.region(wanted)
        parts = _parts(region, group, [(value.region(tile.slot), tile.holders) for tile in tiles])
        return [
            Share(
                wanted if part == region else _slot(value, wanted, part),
                tuple(
                    self._piece(value, wanted, tile, common, rank)
                    for tile in tiles
                    if (common := overlap(value.region(tile.slot), part)) is not None
                ),
            )
            for rank, part in zip(group, parts, strict=True)
        ]

    def _piece(self, value: ValueSpec, wanted: Slot, tile: Tile, region: Region, rank: int) -> Piece:
        if rank in tile.holders:
            return Piece(tile.slot, tile.slot, rank)
        owner = min(tile.holders, key=lambda each: (self.sent_bytes.get(each, 0), each))
        num_bytes = num_elements(region) * dtype_bytes(value.dtype)
        self.sent_bytes[owner] = self.sent_bytes.get(owner, 0) + num_bytes
        return Piece(_slot(value, wanted, region), tile.slot, owner)


def _parts(region: Region, group: Sequence[int], tiles: Sequence[tuple[Region, tuple[int, ...]]]) -> Sequence[Region]:
    """Of each rank the part that it is brought: of all ways to cut what they want the one with which most is there
    already; all of it where nothing has to be sent, or no dim has as many elements as there are ranks."""
    whole = [region] * len(group)
    missing = partial(_num_missing, group=group, tiles=tiles)
    cuts = [split(region, dim, len(group)) for dim, size in enumerate(lengths(region)) if size >= len(group)]
    if len(group) == 1 or not cuts or not missing(whole):
        return whole
    return min(cuts, key=lambda parts: (missing(parts), max(map(num_elements, parts))))


def _num_missing(
    parts: Sequence[Region], *, group: Sequence[int], tiles: Sequence[tuple[Region, tuple[int, ...]]]
) -> int:
    """Elements of parts that their ranks have not."""
    return sum(
        num_elements(common)
        for rank, part in zip(group, parts, strict=True)
        for region, holders in tiles
        if rank not in holders and (common := overlap(region, part)) is not None
    )


def _slot(value: ValueSpec, wanted: Slot, region: Region) -> Slot:
    """A part of a slot: by its examples where it has all of them, else as a tile."""
    whole = replace(wanted, tile=())
    if value.dim is not None:
        per_example = value.shape[value.dim] // value.examples
        first, end = region[value.dim][0]
        if len(region[value.dim]) == 1 and first % per_example == end % per_example == 0:
            whole = replace(whole, first=first // per_example, count=(end - first) // per_example)
    return whole if value.region(whole) == region else replace(wanted, tile=region)
