"""Pinned prefixes: content that stays on the device from when it is computed until it is unpinned."""

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PinnedPrefix:
    """The state of a pinned prefix, in whole blocks: how long it is, and how much of it is computed and held."""

    pin_id: str
    num_blocks: int
    num_resident_blocks: int


class PinTable:
    """The table of pinned block names: who pinned each, and the block that is held for it. Pinned prefixes may overlap.

    Attributes:
        held: the block that is kept for a name, once there is one.
    """

    def __init__(self) -> None:
        self._names: dict[str, tuple[bytes, ...]] = {}
        self._num_pins: Counter[bytes] = Counter()
        self.held: dict[bytes, int] = {}

    @property
    def num_blocks(self) -> int:
        """Distinct blocks that are pinned, computed or not."""
        return len(self._num_pins)

    def num_blocks_with(self, pin_id: str, names: tuple[bytes, ...]) -> int:
        """`num_blocks`, if the pin held these names and nothing else."""
        others = {name for other, pinned in self._names.items() if other != pin_id for name in pinned}
        return len(others.union(names))

    def put(self, pin_id: str, names: tuple[bytes, ...]) -> list[int]:
        """Pins the names under an id, in place of what it pinned before; returns the blocks to let go."""
        self._num_pins.update(names)
        released = self.remove(pin_id)
        self._names[pin_id] = names
        return released

    def remove(self, pin_id: str) -> list[int]:
        """Forgets a pin, known or not; returns the blocks that no other pin needs, last block first."""
        names = self._names.pop(pin_id, ())
        self._num_pins.subtract(names)
        unpinned = [name for name in reversed(names) if self._num_pins[name] == 0]
        for name in unpinned:
            del self._num_pins[name]
        return [self.held.pop(name) for name in unpinned if name in self.held]

    def wants(self, name: bytes) -> bool:
        """Whether the name is pinned, but no block is held for it."""
        return name in self._num_pins and name not in self.held

    def hold(self, name: bytes, *, block: int) -> None:
        self.held[name] = block

    def __contains__(self, pin_id: str) -> bool:
        return pin_id in self._names

    def prefixes(self) -> list[PinnedPrefix]:
        return [
            PinnedPrefix(pin_id, len(names), sum(name in self.held for name in names))
            for pin_id, names in self._names.items()
        ]
