"""Devices that are alike, and the machines that they are in."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.core.errors import InvalidArgumentError
from headway.core.node_span import span


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """Attributes:
    nodes: number of devices of each machine.
    memory_bytes: of each device, for models.
    device: its name in the catalogue; empty where there is no other kind.
    is_joined: whether a pipeline that fits no machine may span them.
    """

    nodes: tuple[int, ...]
    memory_bytes: int
    device: str = ""
    is_joined: bool = False

    @property
    def num_devices(self) -> int:
        return sum(self.nodes)

    @property
    def largest_node(self) -> int:
        return max(self.nodes, default=0)

    @property
    def largest_group(self) -> int:
        return self.num_devices if self.is_joined else self.largest_node

    def span(self, pp: int, op: int) -> tuple[int, ...]:
        """Devices that such a group has in each of its machines; () where there can be none."""
        parts = span(pp, op, node=self.largest_node)
        is_there = len(parts) == 1 or (self.is_joined and first_fit(parts, self.nodes) is not None)
        return parts if is_there else ()


def first_fit(sizes: Iterable[int], rooms: Sequence[int]) -> list[int] | None:
    """Puts each size into the first room that has space for it. Returns the space left in each room; None where a size
    found none.
    """
    left = list(rooms)
    for size in sizes:
        room = next((index for index, free in enumerate(left) if free >= size), None)
        if room is None:
            return None
        left[room] -= size
    return left


def most_groups(parts: Sequence[int], rooms: Sequence[int]) -> int:
    """Returns how many groups fit side by side, each with `parts` of one `span`; exact."""
    count = 0
    while first_fit(sorted((*parts,) * (count + 1), reverse=True), rooms) is not None:
        count += 1
    return count


def even_nodes(num_devices: int, devices_per_node: int | None = None) -> tuple[int, ...]:
    """Machines of so many devices each, but for the last one; None for one machine."""
    full, rest = divmod(num_devices, devices_per_node or num_devices)
    return (*[devices_per_node or num_devices] * full, *([rest] if rest else []))


def check_devices(*, num_devices: int, memory_bytes: int, devices_per_node: int) -> None:
    """InvalidArgumentError names the field."""
    for field, value in (
        ("num_devices", num_devices),
        ("memory_bytes", memory_bytes),
        ("devices_per_node", devices_per_node),
    ):
        if value < 1:
            raise InvalidArgumentError(f"{field} is {value}.", hint="It must be at least 1.", field=field)
