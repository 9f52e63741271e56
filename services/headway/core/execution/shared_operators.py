"""How each operator of a stage is shared by the devices of its mesh. Pure.

Every value lies in one way where its operator made it. An operator is shared as the plan says where a rule says that it
can be, and else computed as a whole by each device. Terms of sums are joined where they are made, but for gradients of
parameters, which are added up once an iteration.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headway.core.execution.mixed import is_cast
from headway.core.execution.parts import StagePart, draws
from headway.core.execution.sharding import SplitOperator, StageSharding
from headway.core.execution.split_rules import FOLLOWING, SUMMED, Split, SplitCall, Summed, split_call
from headway.core.execution.tiles import ViewedAs, is_possible, viewed, without
from headway.core.program import Program
from headway.core.sharding_spec import Shard, ShardingSpec

GETITEM = "getitem"
_ADD = "aten.add.Tensor"
_OF_OTHER_DTYPE = "aten.view.dtype"


@dataclass(frozen=True, slots=True)
class Lies:
    """How a value lies, and along which axes devices have terms of it."""

    spec: ShardingSpec
    terms: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class SharedCall:
    """An instruction on each device.

    Attributes:
        reads: how each of its references lies, in order.
        once: of each reference the axes along which only the first device has it.
        results: how each result lies as it is made.
        joined: how the result lies in the end; of several results as they are made.
        view: of a view, how it is one.
        meets: of what meets inside of the operator, along which axis.
    """

    reads: tuple[Lies, ...]
    results: tuple[Lies, ...]
    joined: Lies
    once: tuple[tuple[int, ...], ...] = ()
    view: ViewedAs | None = None
    meets: tuple[tuple[int, str], ...] = ()


@dataclass
class SharedOperators:
    """Decides how each instruction of a stage is shared; the same for all of its parts.

    Args:
        kept_whole: values that slots have as wholes.
        crossing: values that other stages read, and that it reads of them.
        twins: by number of a value the stage on the same ranks, sharing operators alike, that makes it.
    """

    program: Program
    sharding: StageSharding
    parts: Sequence[StagePart]
    kept_whole: Collection[int]
    crossing: Collection[int] = ()
    twins: dict[int, "SharedOperators"] = field(default_factory=dict)
    _calls: dict[int, SharedCall] = field(default_factory=dict)
    _arguments: dict[int, dict[str, Any]] = field(default_factory=dict)

    @cached_property
    def num_inputs(self) -> int:
        return len(self.program.inputs)

    @property
    def mesh(self) -> tuple[int, ...]:
        return self.sharding.mesh

    @cached_property
    def whole(self) -> Lies:
        return Lies(self.sharding.whole)

    @cached_property
    def _operators(self) -> dict[str, SplitOperator]:
        return {each.operator: each for each in self.sharding.operators}

    @cached_property
    def _inside(self) -> frozenset[int]:
        """Positions of the stage's own instructions."""
        return frozenset(at for part in self.parts for at in part.cut.positions)

    @cached_property
    def gradients(self) -> frozenset[int]:
        """Numbers of values that are terms of parameters' gradients, and of nothing else."""
        written = {number for part in self.parts for number in part.writes}
        ends = {n for part in self.parts for n in part.cut.writes[len(part.writes) :]}
        readers: dict[int, set[int]] = {}
        for at in self._inside:
            for number in self.program.references(at):
                readers.setdefault(number, set()).add(self.num_inputs + at)
        found: set[int] = set()
        for number in sorted({self.num_inputs + at for at in self._inside}, reverse=True):
            later = readers.get(number, set())
            is_read_so = later <= found and all(self._is_linear(reader - self.num_inputs) for reader in later)
            if number not in written and (number in ends or later) and is_read_so:
                found.add(number)
        return frozenset(found)

    def _is_linear(self, at: int) -> bool:
        instruction = self.program.instructions[at]
        is_sum = instruction.target == _ADD and '"kwargs":{}' in instruction.arguments
        return instruction.is_view or (is_sum and len(self.program.references(at)) == 2)

    def given(self, at: int) -> dict[str, Any]:
        """The arguments of an instruction."""
        if at not in self._arguments:
            self._arguments[at] = json.loads(self.program.instructions[at].arguments)
        return self._arguments[at]

    def lies(self, number: int) -> Lies:
        """How a value lies where it is made."""
        at = number - self.num_inputs
        if at < 0:
            return Lies(self.sharding.parameter(self.program.names[number]))
        return self.call(at).joined

    def slot(self, number: int) -> Lies:
        """How a value lies between parts."""
        if number in self.kept_whole:
            return self.whole
        return self.lies(number)

    @cached_property
    def _wishes(self) -> dict[str, ShardingSpec]:
        """By name of a tensor, how the first operator that the plan says to read it reads it."""
        return {tile.tensor: tile.spec for each in reversed(self.sharding.operators) for tile in reversed(each.reads)}

    def _wished(self, number: int) -> Lies:
        """How a value of another stage is to come; where no operator of the plan reads it, as it is on these ranks."""
        name, views = self._base(number)
        if number not in self.crossing or number in self.kept_whole:
            return self.whole
        if name in self._wishes and not views:
            spec = self._wishes[name]
            return Lies(spec) if is_possible(self.program.value(number).shape, spec, self.mesh) else self.whole
        return self.twins[number].slot(number) if number in self.twins else self.whole

    def call(self, at: int) -> SharedCall:
        if at not in self._calls:
            for before in self._before(at):
                self._calls[before] = self._decided(before)
        return self._calls[at]

    def _before(self, at: int) -> list[int]:
        """The instruction and all that it is made of and that is not decided, in order."""
        found: set[int] = set()
        waiting = [at]
        while waiting:
            each = waiting.pop()
            if each not in found and each not in self._calls:
                found.add(each)
                waiting += [n - self.num_inputs for n in self.program.references(each) if n >= self.num_inputs]
        return sorted(found)

    def _decided(self, at: int) -> SharedCall:
        instruction = self.program.instructions[at]
        read = self.program.references(at)
        if at not in self._inside:
            lies = self._wished(self.num_inputs + at)
            return SharedCall(tuple(self.whole for _ in read), tuple(lies for _ in instruction.results), lies)
        if instruction.target == GETITEM:
            return self._picked(at, read[0])
        if instruction.is_view and read:
            return self._view(at, self.lies(read[0]))
        if self.num_inputs + at in self.gradients and instruction.target == _ADD:
            return self._added(read)
        return self._operator(at, read)

    def _picked(self, at: int, source: int) -> SharedCall:
        maker = self.call(source - self.num_inputs)
        index = self.given(at)["args"][1]
        own = maker.results[index] if index < len(maker.results) else self.whole
        return SharedCall((self.whole,), (own,), self._joined(self.num_inputs + at, own, None))

    def _view(self, at: int, source: Lies) -> SharedCall:
        view = self._viewed(at, source.spec)
        results = tuple(Lies(spec, source.terms) for spec in view.results)
        return SharedCall((Lies(view.source, source.terms),), results, results[0], view=view)

    def _viewed(self, at: int, spec: ShardingSpec) -> ViewedAs:
        instruction = self.program.instructions[at]
        source = self.program.value(self.program.references(at)[0])
        shapes = [value.shape for value in instruction.results]
        return viewed(short_name(instruction.target), self.given(at)["args"][1:], source.shape, shapes, spec, self.mesh)

    def _added(self, read: Sequence[int]) -> SharedCall:
        """Two terms of a gradient: where devices have terms of one, they get terms of the other."""
        given = [self.lies(number) for number in read]
        terms = frozenset(axis for each in given for axis in each.terms)
        spec = without(
            given[0].spec, {*terms, *(a for a, s in enumerate(given[0].spec.axes) if s != given[1].spec.axes[a])}
        )
        once = tuple(tuple(sorted(terms - each.terms)) for each in given)
        reads = tuple(Lies(spec, each.terms) for each in given)
        own = Lies(spec, terms)
        return SharedCall(reads, (own,), own, once=once)

    def _operator(self, at: int, read: Sequence[int]) -> SharedCall:
        instruction = self.program.instructions[at]
        own = self._operators.get(instruction.name)
        wanted = list(self._wanted(at, read, own))
        axes = [axis for axis, size in enumerate(self.mesh) if size > 1]
        while True:
            made_so = None if own is None else own.makes
            splits = {a: split for a in axes if (split := self._split(at, read, wanted, a, made_so)) is not None}
            specs = [self._spec({a: split.operands[i] for a, split in splits.items()}) for i in range(len(read))]
            results = range(len(instruction.results))
            made = [self._spec({a: split.results[i] for a, split in splits.items()}) for i in results]
            shapes = [self.program.value(number).shape for number in read]
            shapes += [value.shape for value in instruction.results]
            if all(is_possible(shape, spec, self.mesh) for shape, spec in zip(shapes, [*specs, *made], strict=True)):
                break
            axes.pop()
        lie = tuple(
            Lies(spec, frozenset(axis for axis, split in splits.items() if split.results[i] is SUMMED))
            for i, spec in enumerate(made)
        )
        once = tuple(tuple(axis for axis, split in splits.items() if i in split.once) for i in range(len(read)))
        joined = lie[0] if lie else self.whole
        if len(lie) == 1:
            joined = self._joined(self.num_inputs + at, joined, own.result if own else None)
        meets = tuple((axis, split.meets) for axis, split in splits.items() if split.meets)
        return SharedCall(tuple(map(Lies, specs)), lie, joined, once=once, meets=meets)

    def _spec(self, cuts: Mapping[int, Shard | Summed | None]) -> ShardingSpec:
        found = [cuts.get(axis) for axis in range(len(self.mesh))]
        return ShardingSpec(tuple(each if isinstance(each, Shard) else None for each in found))

    def _split(
        self, at: int, read: Sequence[int], wanted: Sequence[ShardingSpec], axis: int, makes: ShardingSpec | None
    ) -> Split | None:
        instruction = self.program.instructions[at]
        made = None if makes is None else makes.axes[axis]
        if draws(instruction.target) or (made is None and not any(spec.axes[axis] for spec in wanted)):
            return None
        given = self.given(at)
        return split_call(
            SplitCall(
                name=short_name(instruction.target),
                arguments=given["args"],
                named=given["kwargs"],
                shapes=[self.program.value(number).shape for number in read],
                wanted=[spec.axes[axis] for spec in wanted],
                results=[value.shape for value in instruction.results],
                made=made,
            )
        )

    def _wanted(self, at: int, read: Sequence[int], own: SplitOperator | None) -> Iterator[ShardingSpec]:
        """How the plan has each operand lie; what it says of tensors holds for the views of them."""
        if own is None:
            instruction = self.program.instructions[at]
            follows = short_name(instruction.target) in FOLLOWING or instruction.name in self.sharding.following
            yield from (self.lies(number).spec if follows else self.sharding.whole for number in read)
            return
        times: dict[str, int] = {}
        for number in read:
            name, views = self._base(number)
            known = [each.spec for each in own.reads if each.tensor == name]
            spec = known[min(times.get(name, 0), len(known) - 1)] if known else self.sharding.whole
            times[name] = times.get(name, 0) + 1
            for view in views:
                spec = self._through(view, spec)
            yield spec

    def _base(self, number: int) -> tuple[str, list[int]]:
        """The name of the tensor that a value is a view of, or a cast, and the positions of the views, the first one
        first."""
        views: list[int] = []
        at = number - self.num_inputs
        while at >= 0 and self._is_seen_through(at):
            source = self.program.references(at)[0]
            before = source - self.num_inputs
            if is_cast(self.program.instructions[at]):
                number, at = source, before
                continue
            if self.program.instructions[at].target == GETITEM and not self.program.instructions[before].is_view:
                return f"{self.program.name_of(source)}.{self.given(at)['args'][1]}", views[::-1]
            views.append(at)
            number, at = source, before
        return self.program.name_of(number), views[::-1]

    def _is_seen_through(self, at: int) -> bool:
        instruction = self.program.instructions[at]
        return is_cast(instruction) or (instruction.is_view and bool(self.program.references(at)))

    def _through(self, at: int, spec: ShardingSpec) -> ShardingSpec:
        """How a view lies where its source does in some way; of several results as the one that is picked."""
        if self.program.instructions[at].target == GETITEM:
            source = self.program.references(at)[0] - self.num_inputs
            index: int = self.given(at)["args"][1]
            return self._viewed(source, spec).results[index]
        shape = self.program.value(self.program.references(at)[0]).shape
        if not is_possible(shape, spec, self.mesh):
            return self.sharding.whole
        if len(self.program.instructions[at].results) > 1:
            return spec
        return self._viewed(at, spec).results[0]

    def _joined(self, number: int, made: Lies, target: ShardingSpec | None) -> Lies:
        """How a result lies once its terms are added; those of gradients stay as they are."""
        if number in self.gradients or not made.terms:
            return made
        axes = list(made.spec.axes)
        for axis in sorted(made.terms):
            wanted = None if target is None else target.axes[axis]
            if wanted is not None and wanted not in axes[axis + 1 :]:
                axes[axis] = wanted
                if not is_possible(self.program.value(number).shape, ShardingSpec(tuple(axes)), self.mesh):
                    axes[axis] = None
        return Lies(ShardingSpec(tuple(axes)))


def short_name(target: str) -> str:
    """Of an operator without its namespace and overload; of views of the bytes of another dtype the whole."""
    return target.split(".")[1] if target.count(".") and target != _OF_OTHER_DTYPE else target
