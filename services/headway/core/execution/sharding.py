"""How a stage's operators, parameters and received values lie over the devices that compute a run together."""

from dataclasses import dataclass
from math import prod

from headway.core.execution.regions import Region, lengths, taken
from headway.core.execution.tiles import local_outer
from headway.core.sharding_spec import ShardingSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOperator:
    """An operator that devices share.

    Attributes:
        operator: its name in the captured program.
        reads: how it reads tensors, in the order of its operands; a tensor that it reads as several parts is there as
            often.
        result: how its first result lies in the end, where partial results are scattered and not joined on all
            devices; else None.
        makes: how its first result is cut by what no operand has, such as the rows of a table's gradient; else None.
    """

    operator: str
    reads: tuple["TensorTile", ...]
    result: ShardingSpec | None = None
    makes: ShardingSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorTile:
    """Attributes:
    tensor: name of a parameter, or of the operator that makes it, with the result's number where there are several.
    """

    tensor: str
    spec: ShardingSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotTile:
    """How the ranks of a team hold a value that stages hand each other.

    Attributes:
        value: of the program.
    """

    value: int
    spec: ShardingSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSharding:
    """Attributes:
    mesh: devices along each axis.
    operators: that devices share; all others are computed as a whole by each device, but for casts and copies, which
        are where what they read is.
    parameters: that devices have parts of.
    following: names of operators that the plan has not, and that are shared as what they read lies.
    """

    mesh: tuple[int, ...]
    operators: tuple[SplitOperator, ...]
    parameters: tuple[TensorTile, ...] = ()
    following: tuple[str, ...] = ()

    @property
    def num_devices(self) -> int:
        return prod(self.mesh)

    @property
    def whole(self) -> ShardingSpec:
        return ShardingSpec.replicated(len(self.mesh))

    def parameter(self, name: str) -> ShardingSpec:
        return next((each.spec for each in self.parameters if each.tensor == name), self.whole)

    def coordinates(self, member: int) -> tuple[int, ...]:
        """Of one of the devices along each axis; the last axis runs fastest."""
        found = []
        for size in reversed(self.mesh):
            found.append(member % size)
            member //= size
        return tuple(reversed(found))

    def tile(self, name: str, member: int) -> tuple[int, ...]:
        """Which part of a parameter a device has: its coordinates along the axes that cut it, and 0 along others."""
        axes = self.parameter(name).axes
        pairs = zip(self.coordinates(member), axes, strict=True)
        return tuple(at if shard is not None else 0 for at, shard in pairs)

    def part_of(self, region: Region, spec: ShardingSpec, member: int) -> Region:
        """Which part of a region a device has; where axes cut the same parts of a dim, the first of them cuts first."""
        coordinates = self.coordinates(member)
        cuts = sorted((shard.outer, axis, shard.dim) for axis, shard in enumerate(spec.axes) if shard is not None)
        for _, axis, dim in cuts:
            outer, size, at = local_outer(spec.axes, axis, self.mesh), self.mesh[axis], coordinates[axis]
            length = lengths(region)[dim] // outer
            places = [(n * length + at * length // size, n * length + (at + 1) * length // size) for n in range(outer)]
            region = (*region[:dim], taken(region[dim], places), *region[dim + 1 :])
        return region
