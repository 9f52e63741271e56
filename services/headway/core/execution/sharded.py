"""What each device of a mesh runs of a part of a stage, where devices share the stage's operators. Pure.

A local program is the same on all devices: the part's operators on what each has of their operands, and between them
instructions that move values over one axis of the mesh. Every value lies in one way where its operator made it; an
operator that wants it otherwise has it moved before. Terms of sums are joined where they are made, but for gradients of
parameters, which are added up once an iteration.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

from headway.core.execution.execution import StageSpec
from headway.core.execution.parts import StageOperators, StagePart, StepParts, cut_stages, draws
from headway.core.execution.sharding import SplitOperator, StageSharding
from headway.core.execution.split_rules import FOLLOWING, SIZED, SUMMED, Split, SplitCall, split_call
from headway.core.execution.strides import dense_stride
from headway.core.execution.tiles import (
    Move,
    MoveKind,
    ViewedAs,
    is_possible,
    local_outer,
    local_shape,
    moves,
    viewed,
    without,
)
from headway.core.program import REFERENCE, Cut, Instruction, Program, Value
from headway.core.sharding_spec import Shard, ShardingSpec

_GETITEM = "getitem"
_ADD = "aten.add.Tensor"
_RESHAPE = "aten.reshape.default"
_RESHAPED = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze")
_NO_SHAPES = ("aten.view.dtype",)


@dataclass(frozen=True, slots=True)
class _Lies:
    """How a value lies, and along which axes devices have terms of it."""

    spec: ShardingSpec
    terms: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Call:
    """An instruction on each device.

    Attributes:
        reads: how each of its references lies, in order.
        once: of each reference the axes along which only the first device has it.
        results: how each result lies as it is made.
        joined: how the result lies in the end; of several results as they are made.
        view: of a view, how it is one.
    """

    reads: tuple[_Lies, ...]
    results: tuple[_Lies, ...]
    joined: _Lies
    once: tuple[tuple[int, ...], ...] = ()
    view: ViewedAs | None = None


def sharded_parts(step: StepParts, program: Program, shardings: Mapping[int, StageSharding]) -> StepParts:
    """The parts of a step where stages have meshes, as programs of one device each.

    Args:
        program: the step that was cut.
        shardings: by stage. What other stages read of such a stage, and what it reads of them, is whole on each device.
    """
    if not shardings:
        return step
    maker = {number: part.stage for part in step.parts for number in part.writes}
    crossing = {n for part in step.parts for n in part.cut.reads if n in maker and maker[n] != part.stage}
    found = list(step.parts)
    for stage, sharding in shardings.items():
        own = [(at, part) for at, part in enumerate(step.parts) if part.stage == stage]
        sharder = _Sharder(program, sharding, [part for _, part in own], {*crossing, step.loss, step.seed})
        for at, part in own:
            found[at] = replace(part, cut=_Local(sharder, part).cut())
    return replace(step, parts=tuple(found))


def step_parts(program: Program, stages: Sequence[StageSpec], count: int, *, splits: bool) -> StepParts:
    """The parts of a step that was captured with so many examples, as one rank runs them; of stages whose runs have
    another number of examples as if they were not sharded."""
    operators = [StageOperators(forward=s.forward, backward=s.backward, recomputes=s.recomputes) for s in stages]
    step = cut_stages(program, operators, splits=splits)
    own = {at: s.sharding for at, s in enumerate(stages) if s.sharding is not None and s.examples == count}
    return sharded_parts(step, program, own)


def cut_slots(step: StepParts, program: Program) -> dict[int, int]:
    """Of the values of slots that ranks have parts of, how many there are."""
    found = {}
    for part in step.parts:
        for result, number in zip(part.cut.program.results, part.writes, strict=False):
            has, whole = part.cut.program.value(result).shape, program.value(number).shape
            if has != whole:
                found[number] = prod(whole) // prod(has)
    return found


@dataclass
class _Sharder:
    """Decides how each instruction of a stage is shared; the same for all of its parts.

    Args:
        whole: values that slots have as wholes.
    """

    program: Program
    sharding: StageSharding
    parts: Sequence[StagePart]
    whole: Collection[int]
    _calls: dict[int, _Call] = field(default_factory=dict)
    _arguments: dict[int, dict[str, Any]] = field(default_factory=dict)

    @cached_property
    def num_inputs(self) -> int:
        return len(self.program.inputs)

    @property
    def mesh(self) -> tuple[int, ...]:
        return self.sharding.mesh

    @cached_property
    def nowhere(self) -> _Lies:
        return _Lies(self.sharding.whole)

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

    def lies(self, number: int) -> _Lies:
        """How a value lies where it is made."""
        at = number - self.num_inputs
        if at < 0:
            return _Lies(self.sharding.parameter(self.program.names[number]))
        return self.call(at).joined

    def slot(self, number: int) -> _Lies:
        """How a value lies between parts."""
        return self.nowhere if number in self.whole else self.lies(number)

    def call(self, at: int) -> _Call:
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

    def _decided(self, at: int) -> _Call:
        instruction = self.program.instructions[at]
        read = self.program.references(at)
        if at not in self._inside:
            results = tuple(self.nowhere for _ in instruction.results)
            return _Call(tuple(self.nowhere for _ in read), results, self.nowhere)
        if instruction.target == _GETITEM:
            return self._picked(at, read[0])
        if instruction.is_view and read:
            return self._view(at, self.lies(read[0]))
        if self.num_inputs + at in self.gradients and instruction.target == _ADD:
            return self._added(read)
        return self._operator(at, read)

    def _picked(self, at: int, source: int) -> _Call:
        maker = self.call(source - self.num_inputs)
        index = self.given(at)["args"][1]
        own = maker.results[index] if index < len(maker.results) else self.nowhere
        return _Call((self.nowhere,), (own,), self._joined(self.num_inputs + at, own, None))

    def _view(self, at: int, source: _Lies) -> _Call:
        view = self._viewed(at, source.spec)
        results = tuple(_Lies(spec, source.terms) for spec in view.results)
        return _Call((_Lies(view.source, source.terms),), results, results[0], view=view)

    def _viewed(self, at: int, spec: ShardingSpec) -> ViewedAs:
        instruction = self.program.instructions[at]
        source = self.program.value(self.program.references(at)[0])
        name = instruction.target if instruction.target in _NO_SHAPES else _short(instruction.target)
        shapes = [value.shape for value in instruction.results]
        return viewed(name, self.given(at)["args"][1:], source.shape, shapes, spec, self.mesh)

    def _added(self, read: Sequence[int]) -> _Call:
        """Two terms of a gradient: where devices have terms of one, they get terms of the other."""
        given = [self.lies(number) for number in read]
        terms = frozenset(axis for each in given for axis in each.terms)
        spec = without(given[0].spec, {*terms, *(a for a, s in enumerate(given[0].spec.axes) if s != given[1].spec.axes[a])})
        once = tuple(tuple(sorted(terms - each.terms)) for each in given)
        reads = tuple(_Lies(spec, each.terms) for each in given)
        own = _Lies(spec, terms)
        return _Call(reads, (own,), own, once=once)

    def _operator(self, at: int, read: Sequence[int]) -> _Call:
        instruction = self.program.instructions[at]
        own = self._operators.get(instruction.name)
        wanted = list(self._wanted(at, read, own))
        axes = [axis for axis, size in enumerate(self.mesh) if size > 1]
        while True:
            splits = {axis: split for axis in axes if (split := self._split(at, read, wanted, axis)) is not None}
            specs = [self._spec(splits, lambda split, i=i: split.operands[i]) for i in range(len(read))]  # type: ignore[misc]
            made = [self._spec(splits, lambda split, i=i: split.results[i]) for i in range(len(instruction.results))]  # type: ignore[misc]
            shapes = [self.program.value(number).shape for number in read]
            shapes += [value.shape for value in instruction.results]
            if all(is_possible(shape, spec, self.mesh) for shape, spec in zip(shapes, [*specs, *made], strict=True)):
                break
            axes.pop()
        results = tuple(
            _Lies(spec, frozenset(axis for axis, split in splits.items() if split.results[i] is SUMMED))
            for i, spec in enumerate(made)
        )
        once = tuple(tuple(axis for axis, split in splits.items() if i in split.once) for i in range(len(read)))
        result = results[0] if results else self.nowhere
        if len(results) == 1:
            result = self._joined(self.num_inputs + at, result, own.result if own else None)
        return _Call(tuple(map(_Lies, specs)), results, result, once=once)

    def _spec(self, splits: Mapping[int, Split], of: Any) -> ShardingSpec:
        found = (of(splits[axis]) if axis in splits else None for axis in range(len(self.mesh)))
        return ShardingSpec(tuple(each if isinstance(each, Shard) else None for each in found))

    def _split(self, at: int, read: Sequence[int], wanted: Sequence[ShardingSpec], axis: int) -> Split | None:
        instruction = self.program.instructions[at]
        if draws(instruction.target) or not any(spec.axes[axis] for spec in wanted):
            return None
        given = self.given(at)
        return split_call(
            SplitCall(
                name=_short(instruction.target),
                arguments=given["args"],
                named=given["kwargs"],
                shapes=[self.program.value(number).shape for number in read],
                wanted=[spec.axes[axis] for spec in wanted],
                results=[value.shape for value in instruction.results],
            )
        )

    def _wanted(self, at: int, read: Sequence[int], own: SplitOperator | None) -> Iterator[ShardingSpec]:
        """How the plan has each operand lie; what it says of tensors holds for the views of them."""
        if own is None:
            follows = _short(self.program.instructions[at].target) in FOLLOWING
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
        """The name of the tensor that a value is a view of, and the positions of the views, the first one first."""
        views: list[int] = []
        at = number - self.num_inputs
        while at >= 0 and self.program.instructions[at].is_view and self.program.references(at):
            source = self.program.references(at)[0]
            before = source - self.num_inputs
            if self.program.instructions[at].target == _GETITEM and not self.program.instructions[before].is_view:
                return f"{self.program.name_of(source)}.{self.given(at)['args'][1]}", views[::-1]
            views.append(at)
            number, at = source, before
        return self.program.name_of(number), views[::-1]

    def _through(self, at: int, spec: ShardingSpec) -> ShardingSpec:
        """How a view lies where its source does in some way; of several results as the one that is picked."""
        if self.program.instructions[at].target == _GETITEM:
            source = self.program.references(at)[0] - self.num_inputs
            return self._viewed(source, spec).results[self.given(at)["args"][1]]
        shape = self.program.value(self.program.references(at)[0]).shape
        if not is_possible(shape, spec, self.mesh):
            return self.sharding.whole
        if len(self.program.instructions[at].results) > 1:
            return spec
        return self._viewed(at, spec).results[0]

    def _joined(self, number: int, made: _Lies, target: ShardingSpec | None) -> _Lies:
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
        return _Lies(ShardingSpec(tuple(axes)))


class _Local:
    """Writes the program of one part."""

    def __init__(self, sharder: _Sharder, part: StagePart) -> None:
        self._sharder, self._part = sharder, part
        self._program, self._mesh = sharder.program, sharder.mesh
        self._inputs: list[Value] = []
        self._instructions: list[Instruction] = []
        self._values: list[Value] = []
        self._numbers: dict[tuple[int, _Lies], int] = {}
        self._several: dict[int, int] = {}

    def cut(self) -> Cut:
        for number in self._part.cut.reads:
            lies = self._sharder.slot(number)
            self._inputs.append(self._local(self._program.value(number), lies.spec))
            self._values.append(self._inputs[-1])
            self._numbers[number, lies] = len(self._values) - 1
        for at in self._part.cut.positions:
            self._write(at)
        num_values = len(self._part.writes)
        results = [self._at(n, self._sharder.slot(n)) for n in self._part.writes]
        for name, number in zip(self._part.gradients, self._part.cut.writes[num_values:], strict=True):
            results.append(self._gradient(number, self._sharder.sharding.parameter(name)))
        program = Program(
            inputs=tuple(self._inputs), instructions=tuple(self._instructions), results=tuple(results)
        )
        return replace(self._part.cut, program=program)

    def _local(self, value: Value, spec: ShardingSpec) -> Value:
        shape = local_shape(value.shape, spec, self._mesh)
        if shape == value.shape:
            return value
        return replace(value, shape=shape, stride=dense_stride(shape, value.stride))

    def _write(self, at: int) -> None:
        """Appends an instruction of the part, with what brings its operands to where it wants them before it, and what
        joins its result behind it."""
        instruction, call = self._program.instructions[at], self._sharder.call(at)
        number = self._sharder.num_inputs + at
        read = self._program.references(at)
        if instruction.target == _GETITEM:
            local = [self._several[read[0]]]
        else:
            pairs = enumerate(zip(read, call.reads, strict=True))
            local = [self._moved(self._at(n, lies), call.once[i] if call.once else ()) for i, (n, lies) in pairs]
        values = tuple(
            self._local(value, lies.spec) for value, lies in zip(instruction.results, call.results, strict=True)
        )
        text = json.dumps(self._called(at, call, local, values), separators=(",", ":"))
        target = _RESHAPE if call.view is not None and _is_reshape(instruction) else instruction.target
        made = self._append(Instruction(target=target, arguments=text, results=values, is_view=instruction.is_view))
        self._several[number] = made
        if len(instruction.results) != 1:
            return
        own = call.results[0]
        self._numbers[number, own] = made
        if own != call.joined:
            self._numbers[number, call.joined] = self._join(made, own, call.joined)

    def _called(self, at: int, call: _Call, local: Sequence[int], results: Sequence[Value]) -> dict[str, Any]:
        given = self._sharder.given(at)
        instruction = self._program.instructions[at]
        numbers = iter(local)
        if call.view is not None:
            shape = [list(results[0].shape)] if _is_reshape(instruction) else call.view.arguments
            return {"args": [{REFERENCE: next(numbers)}, *shape], "kwargs": given["kwargs"] if not _is_reshape(instruction) else {}}
        arguments = _replaced(given["args"], numbers)
        if (sized := SIZED.get(_short(instruction.target))) is not None:
            arguments[sized] = list(results[0].shape)
        return {"args": arguments, "kwargs": _replaced(given["kwargs"], numbers)}

    def _at(self, number: int, lies: _Lies) -> int:
        """The local number of a value that lies so, with what brings it there."""
        if (number, lies) in self._numbers:
            return self._numbers[number, lies]
        own = self._sharder.lies(number)
        if (number, own) not in self._numbers:
            own = self._sharder.slot(number)
        at = self._numbers[number, own]
        assert own.terms == lies.terms, "terms are joined where they are made"
        for move in moves(own.spec, lies.spec, self._mesh):
            at = self._move(at, move)
        self._numbers[number, lies] = at
        return at

    def _moved(self, at: int, once: Sequence[int]) -> int:
        for axis in once:
            at = self._move(at, Move(MoveKind.FIRST, axis))
        return at

    def _join(self, at: int, made: _Lies, joined: _Lies) -> int:
        axes = list(made.spec.axes)
        for axis in sorted(made.terms - joined.terms):
            axes[axis] = joined.spec.axes[axis]
            shard = axes[axis]
            if shard is None:
                at = self._move(at, Move(MoveKind.SUM, axis))
            else:
                at = self._move(at, Move(MoveKind.SCATTER, axis, shard.dim, local_outer(axes, axis, self._mesh)))
        return at

    def _gradient(self, number: int, target: ShardingSpec) -> int:
        """The gradient of a parameter as terms along the axes that do not cut the parameter."""
        own = self._sharder.lies(number)
        if (number, own) not in self._numbers:
            own = self._sharder.slot(number)
        at, spec = self._numbers[number, own], own.spec
        cut = {axis for axis, shard in enumerate(target.axes) if shard is not None}
        for axis in sorted(own.terms & cut):
            at = self._move(at, Move(MoveKind.SUM, axis))
        middle = ShardingSpec(tuple(target.axes[a] if a in cut else shard for a, shard in enumerate(spec.axes)))
        for move in moves(spec, middle, self._mesh):
            at = self._move(at, move)
        axes = list(middle.axes)
        for axis in reversed(range(len(axes))):
            shard = axes[axis]
            if axis in cut or axis in own.terms or self._mesh[axis] == 1:
                continue
            if shard is None:
                at = self._move(at, Move(MoveKind.FIRST, axis))
            else:
                at = self._move(at, Move(MoveKind.SPREAD, axis, shard.dim, local_outer(axes, axis, self._mesh)))
                axes[axis] = None
        return at

    def _move(self, at: int, move: Move) -> int:
        value, size = self._values[at], self._mesh[move.axis]
        shape = list(value.shape)
        if move.kind in (MoveKind.GATHER, MoveKind.SPREAD):
            shape[move.dim] *= size
        elif move.kind in (MoveKind.SLICE, MoveKind.SCATTER):
            shape[move.dim] //= size
        result = replace(value, shape=tuple(shape), stride=dense_stride(shape, value.stride), is_weight=False)
        arguments = {"args": [{REFERENCE: at}, move.axis, move.dim, move.outer], "kwargs": {}}
        text = json.dumps(arguments, separators=(",", ":"))
        return self._append(Instruction(target=move.kind.value, arguments=text, results=(result,)))

    def _append(self, instruction: Instruction) -> int:
        self._instructions.append(instruction)
        self._values.append(instruction.results[0])
        return len(self._values) - 1


def _replaced(argument: Any, numbers: Iterator[int]) -> Any:
    """The same arguments with each reference replaced, in order."""
    if isinstance(argument, list):
        return [_replaced(item, numbers) for item in argument]
    if isinstance(argument, dict):
        if REFERENCE in argument:
            return {REFERENCE: next(numbers)}
        return {key: _replaced(item, numbers) for key, item in argument.items()}
    return argument


def _is_reshape(instruction: Instruction) -> bool:
    return _short(instruction.target) in _RESHAPED and instruction.target not in _NO_SHAPES


def _short(target: str) -> str:
    return target.split(".")[1] if target.count(".") else target
