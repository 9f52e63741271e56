"""What each device of a mesh runs of a part of a stage, where devices share the stage's operators. Pure.

A local program is the same on all devices: the part's operators on what each has of their operands, and between them
instructions that move values over one axis of the mesh: what an operator wants otherwise than it lies is moved before.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from headway.core.execution.execution import StageSpec
from headway.core.execution.meetings import Meeting, written
from headway.core.execution.parts import StageOperators, StagePart, StepParts, cut_stages
from headway.core.execution.sharding import SlotTile, StageSharding
from headway.core.execution.shared_operators import GETITEM, Lies, SharedCall, SharedOperators, short_name
from headway.core.execution.split_rules import SIZED
from headway.core.execution.strides import dense_stride
from headway.core.execution.tiles import RESHAPING, Move, MoveKind, local_outer, local_shape, moves
from headway.core.execution.zero import with_zero
from headway.core.program import REFERENCE, Cut, Instruction, Program, Value
from headway.core.sharding_spec import ShardingSpec

_RESHAPE = "aten.reshape.default"


def sharded_parts(
    step: StepParts, program: Program, shardings: Mapping[int, StageSharding], *, num_slices: int = 1
) -> StepParts:
    """The parts of a step where stages have meshes, as programs of one device each.

    Args:
        program: the step that was cut.
        shardings: by stage. What other stages read of such a stage lies as its operator made it, and what it reads of
            them as its own first operator wants it.
        num_slices: of a planned stage, so many stages on the same ranks.
    """
    if not shardings:
        return step
    shared = _shared_operators(step, program, shardings, num_slices)
    tiles = {stage: tuple(_tiles(each)) for stage, each in shared.items()}
    parts = (
        replace(part, cut=_Local(shared[part.stage], part).cut()) if part.stage in shared else part
        for part in step.parts
    )
    return replace(step, parts=tuple(parts), tiles=tiles)


def _shared_operators(
    step: StepParts, program: Program, shardings: Mapping[int, StageSharding], num_slices: int
) -> dict[int, SharedOperators]:
    maker = {number: part.stage for part in step.parts for number in part.writes}
    crossing = {n for part in step.parts for n in part.cut.reads if n in maker and maker[n] != part.stage}
    whole = {*step.losses, *step.seeds}
    own = {stage: [part for part in step.parts if part.stage == stage] for stage in shardings}
    shared = {
        stage: SharedOperators(program, sharding, own[stage], whole, crossing - whole)
        for stage, sharding in shardings.items()
    }
    for stage, each in shared.items():
        made = ((number, maker[number]) for number in crossing - whole)
        alike = ((n, by) for n, by in made if by != stage and by // num_slices == stage // num_slices)
        each.twins.update({number: shared[by] for number, by in alike if by in shared})
    return shared


def _tiles(shared: SharedOperators) -> Iterator[SlotTile]:
    for number in sorted({n for part in shared.parts for n in (*part.cut.reads, *part.writes)} & set(shared.crossing)):
        spec = shared.slot(number).spec
        if not spec.is_replicated:
            yield SlotTile(value=number, spec=spec)


def step_parts(
    program: Program, stages: Sequence[StageSpec], count: int, *, splits: bool, num_slices: int = 1
) -> StepParts:
    """The parts of a step that was captured with so many examples, as one rank runs them; of stages whose runs have
    another number of examples as if they were not sharded, and held no parts of parameters."""
    operators = [StageOperators(forward=s.forward, backward=s.backward, recomputes=s.recomputes) for s in stages]
    step = cut_stages(program, operators, splits=splits, num_slices=num_slices)
    own = {at: s.sharding for at, s in enumerate(stages) if s.sharding is not None and s.examples == count}
    return with_zero(sharded_parts(step, program, own, num_slices=num_slices), stages, count)


def unshared_operators(
    program: Program, stages: Sequence[StageSpec], count: int, *, num_slices: int = 1
) -> Iterator[tuple[int, str]]:
    """Operators that a plan splits along an axis and every rank of a team computes as a whole along it, with their
    stages; of stages whose runs have as many examples as the step was captured with."""
    if all(stage.sharding is None for stage in stages):
        return
    operators = [StageOperators(forward=s.forward, backward=s.backward, recomputes=s.recomputes) for s in stages]
    step = cut_stages(program, operators, splits=False, num_slices=num_slices)
    positions = program.positions()
    own = {at: s.sharding for at, s in enumerate(stages) if s.sharding is not None and s.examples == count}
    for number, shared in _shared_operators(step, program, own, num_slices).items():
        for each in shared.sharding.operators:
            made = shared.call(positions[each.operator])
            for axis in range(len(shared.mesh)):
                wanted = [tile.spec for tile in each.reads] + ([each.makes] if each.makes is not None else [])
                is_wanted = any(spec.axes[axis] is not None for spec in wanted)
                if is_wanted and all(lies.spec.axes[axis] is None for lies in (*made.reads, *made.results[:1])):
                    yield number, each.operator
                    break


def cut_slots(step: StepParts, program: Program) -> dict[int, int]:
    """Of the values that only the ranks of one stage hold, and have parts of, how many there are."""
    tiled = {tile.value for tiles in step.tiles.values() for tile in tiles}
    found = {}
    for part in step.parts:
        for result, number in zip(part.cut.program.results, part.writes, strict=False):
            has, whole = part.cut.program.value(result).shape, program.value(number).shape
            if has != whole and number not in tiled:
                found[number] = prod(whole) // prod(has)
    return found


class _Local:
    """Writes the program of one part."""

    def __init__(self, shared: SharedOperators, part: StagePart) -> None:
        self._shared, self._part = shared, part
        self._program, self._mesh = shared.program, shared.mesh
        self._inputs: list[Value] = []
        self._instructions: list[Instruction] = []
        self._values: list[Value] = []
        self._numbers: dict[tuple[int, Lies], int] = {}
        self._several: dict[int, int] = {}
        self._met: dict[int, list[int]] = {}

    def cut(self) -> Cut:
        for number in self._part.cut.reads:
            lies = self._shared.slot(number)
            self._inputs.append(self._local(self._program.value(number), lies.spec))
            self._values.append(self._inputs[-1])
            self._numbers[number, lies] = len(self._values) - 1
        for at in self._part.cut.positions:
            self._write(at)
        num_values = len(self._part.writes)
        results = [self._at(n, self._shared.slot(n)) for n in self._part.writes]
        for name, number in zip(self._part.gradients, self._part.cut.writes[num_values:], strict=True):
            results.append(self._gradient(number, self._shared.sharding.parameter(name)))
        program = Program(inputs=tuple(self._inputs), instructions=tuple(self._instructions), results=tuple(results))
        return replace(self._part.cut, program=program)

    def _local(self, value: Value, spec: ShardingSpec) -> Value:
        shape = local_shape(value.shape, spec, self._mesh)
        if shape == value.shape:
            return value
        return replace(value, shape=shape, stride=dense_stride(shape, value.stride))

    def _write(self, at: int) -> None:
        """Appends an instruction of the part, with what brings its operands to where it wants them before it, and what
        joins its result behind it."""
        instruction, call = self._program.instructions[at], self._shared.call(at)
        number = self._shared.num_inputs + at
        read = self._program.references(at)
        if instruction.target == GETITEM and read[0] in self._met:
            self._numbers[number, call.joined] = self._met[read[0]][self._shared.given(at)["args"][1]]
            return
        if instruction.target == GETITEM:
            local = [self._several[read[0]]]
        else:
            pairs = enumerate(zip(read, call.reads, strict=True))
            local = [self._moved(self._at(n, lies), call.once[i] if call.once else ()) for i, (n, lies) in pairs]
        values = tuple(
            self._local(value, lies.spec) for value, lies in zip(instruction.results, call.results, strict=True)
        )
        if call.meets:
            self._meet(at, call, local, values)
            return
        text = json.dumps(self._called(at, call, local, values), separators=(",", ":"))
        target = (
            _RESHAPE if call.view is not None and short_name(instruction.target) in RESHAPING else instruction.target
        )
        made = self._append(Instruction(target=target, arguments=text, results=values, is_view=instruction.is_view))
        self._several[number] = made
        if len(instruction.results) == 1:
            self._place(number, made, call)

    def _meet(self, at: int, call: SharedCall, local: Sequence[int], results: Sequence[Value]) -> None:
        """Appends what stands for an operator in which elements meet that devices have parts of."""
        instruction, number = self._program.instructions[at], self._shared.num_inputs + at
        given = self._called(at, call, local, results)
        meeting = Meeting(
            name=short_name(instruction.target),
            target=instruction.target,
            arguments=given["args"],
            named=given["kwargs"],
            axes=dict(call.meets),
            whole=[self._program.value(each).shape for each in self._program.references(at)],
            results=results,
        )
        self._met[number] = written(meeting, self)
        if len(instruction.results) == 1:
            self._place(number, self._met[number][0], call)

    def value(self, at: int) -> Value:
        return self._values[at]

    def call(self, target: str, arguments: Sequence[object], result: Value, **named: object) -> int:
        text = json.dumps({"args": arguments, "kwargs": named}, separators=(",", ":"))
        return self._append(Instruction(target=target, arguments=text, results=(result,)))

    def join(self, at: int, kind: MoveKind, axis: int) -> int:
        return self._move(at, Move(kind, axis))

    def _place(self, number: int, made: int, call: SharedCall) -> None:
        """Notes a result as it is made, and joined where that is another."""
        own = call.results[0]
        self._numbers[number, own] = made
        if own != call.joined:
            self._numbers[number, call.joined] = self._join(made, own, call.joined)

    def _called(self, at: int, call: SharedCall, local: Sequence[int], results: Sequence[Value]) -> dict[str, Any]:
        given = self._shared.given(at)
        instruction = self._program.instructions[at]
        numbers = iter(local)
        if call.view is not None:
            is_reshape = short_name(instruction.target) in RESHAPING
            named = {} if is_reshape else given["kwargs"]
            return {"args": [{REFERENCE: next(numbers)}, *call.view.arguments], "kwargs": named}
        arguments = _replaced(given["args"], numbers)
        if (sized := SIZED.get(short_name(instruction.target))) is not None:
            arguments[sized] = list(results[0].shape)
        return {"args": arguments, "kwargs": _replaced(given["kwargs"], numbers)}

    def _at(self, number: int, lies: Lies) -> int:
        """The local number of a value that lies so, with what brings it there."""
        if (number, lies) in self._numbers:
            return self._numbers[number, lies]
        own = self._shared.lies(number)
        if (number, own) not in self._numbers:
            own = self._shared.slot(number)
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

    def _join(self, at: int, made: Lies, joined: Lies) -> int:
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
        own = self._shared.lies(number)
        if (number, own) not in self._numbers:
            own = self._shared.slot(number)
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
        places: list[int] = [move.axis, move.dim, move.outer]
        if move.kind in (MoveKind.GATHER, MoveKind.SPREAD, MoveKind.EXCHANGE):
            shape[move.dim] *= size
        elif move.kind in (MoveKind.SLICE, MoveKind.SCATTER):
            shape[move.dim] //= size
        if move.kind is MoveKind.EXCHANGE:
            shape[move.to_dim] //= size
            places += [move.to_dim, move.to_outer]
        result = replace(value, shape=tuple(shape), stride=dense_stride(shape, value.stride), is_weight=False)
        arguments = {"args": [{REFERENCE: at}, *places], "kwargs": {}}
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
