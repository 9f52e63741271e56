"""Parts of stages whose ranks hold parts of parameters and of their gradients (ZeRO stages 2 and 3, Rajbhandari et al.
2020). Pure.

Ranks that hold the same parameter have equal parts of its elements, the last one with zeros at its end where these do
not divide. Behind the operator that gives a gradient each rank gives all others their parts of it, and adds up its own,
in the ranks' order. With stage 3 the parameter is gathered before the first operator of a part that reads it, and
given up behind the last one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from headway.core.execution.execution import StageSpec
from headway.core.execution.mixed import NARROW, WIDE
from headway.core.execution.parts import StagePart, StepParts
from headway.core.execution.specs import parameter_holders, zero_levels
from headway.core.execution.strides import row_major
from headway.core.program import REFERENCE, Cut, Instruction, Program, Value, arguments_text

GATHER_PARAMETER, SCATTER_GRADIENT = "headway.gather_parameter", "headway.scatter_gradient"
"""Targets of programs. Both name the parameter. The first gives it whole; the second all ranks' terms of this rank's
part of a gradient, along dim 0."""
_SCATTERED, _GATHERED = 2, 3


@dataclass(frozen=True, slots=True)
class Held:
    """A parameter of which ranks have parts.

    Attributes:
        zero: 2 or 3.
        num_ranks: that have parts of what each of them would hold without ZeRO.
    """

    zero: int
    num_ranks: int

    def part_size(self, num_elements: int) -> int:
        """Elements that each rank has."""
        return -(-num_elements // self.num_ranks)


def held_parts(stages: Sequence[StageSpec]) -> dict[str, Held]:
    """By name. Stages have their parameters filled in."""
    holders, levels = parameter_holders(stages), zero_levels(stages)
    return {name: Held(level, len(holders[name][0])) for name, level in levels.items() if level >= _SCATTERED}


def sharing_rows(stages: Sequence[StageSpec]) -> set[tuple[int, ...]]:
    """The sets of ranks that have parts of the same parameter."""
    holders = parameter_holders(stages)
    return {ranks for name in held_parts(stages) for ranks in holders[name]}


def with_zero(step: StepParts, stages: Sequence[StageSpec], count: int) -> StepParts:
    """The parts of a step as ranks run them that hold parts of parameters; of stages whose runs have another number of
    examples as they are."""
    named = [replace(stage, parameters=names) for stage, names in zip(stages, step.parameters, strict=True)]
    held = held_parts(named)
    if not held:
        return step
    parts = tuple(
        _Writer(part=part, names=step.names, held=held).written() if stages[part.stage].examples == count else part
        for part in step.parts
    )
    return replace(step, parts=parts)


@dataclass(kw_only=True)
class _Writer:
    """Writes one part anew; `numbers` are new ones by old ones."""

    part: StagePart
    names: Sequence[str]
    held: Mapping[str, Held]
    instructions: list[Instruction] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    gathered: dict[int, str] = field(default_factory=dict)
    """By old number of an input, the parameter that it is a part of."""

    def written(self) -> StagePart:
        cut, gradients = self.part.cut, self.part.gradients
        names = [self.names[number] if number < len(self.names) else "" for number in cut.reads]
        self.gathered = {at: name for at, name in enumerate(names) if self._level(name) == _GATHERED}
        scattered = [name for name in dict.fromkeys(gradients) if self._level(name) >= _SCATTERED]
        if not self.gathered and not scattered:
            return self.part
        return replace(self.part, cut=self._cut(), gathered=tuple(self.gathered.values()), scattered=tuple(scattered))

    def _level(self, name: str) -> int:
        return self.held[name].zero if name in self.held else 0

    def _cut(self) -> Cut:
        program, num_values = self.part.cut.program, len(self.part.writes)
        given = program.results[num_values:]
        wanted: dict[int, list[str]] = {}
        for name, number in zip(self.part.gradients, given, strict=True):
            if self._level(name) >= _SCATTERED and name not in wanted.setdefault(number, []):
                wanted[number].append(name)
        inputs = tuple(self._part_of(each, at) for at, each in enumerate(program.inputs))
        self.numbers = {at: at for at in range(len(inputs)) if at not in self.gathered}
        made: dict[tuple[int, str], int] = {}
        for number in range(len(inputs) + len(program.instructions)):
            at = number - len(inputs)
            if at >= 0 and not self._waits(at):
                self._write(at)
            for name in wanted.get(number, ()):
                self._need(number)
                made[number, name] = self._scatter(number, name)
        for number in program.results:
            self._need(number)
        results = [self.numbers[number] for number in program.results[:num_values]]
        for name, number in zip(self.part.gradients, given, strict=True):
            results.append(made.get((number, name), self.numbers[number]))
        local = Program(inputs=inputs, instructions=tuple(self.instructions), results=tuple(results))
        return replace(self.part.cut, program=local)

    def _part_of(self, value: Value, at: int) -> Value:
        if at not in self.gathered:
            return value
        size = self.held[self.gathered[at]].part_size(prod(value.shape))
        return replace(value, shape=(size,), stride=(1,))

    def _waits(self, at: int) -> bool:
        """Whether it is a view of a parameter, which is not gathered before something reads the view."""
        view, read = self.part.cut.program.instructions[at], self.part.cut.program.references(at)
        return view.is_view and bool(read) and all(number not in self.numbers for number in read)

    def _write(self, at: int) -> None:
        program = self.part.cut.program
        for read in program.references(at):
            self._need(read)
        self.numbers[len(program.inputs) + at] = self._append(program.instructions[at].renumbered(self.numbers))

    def _need(self, number: int) -> None:
        """Has a parameter whole, or a view of one, where it is not there already."""
        if number in self.numbers:
            return
        if number in self.gathered:
            self._gather(number)
        else:
            self._write(number - len(self.part.cut.program.inputs))

    def _gather(self, number: int) -> None:
        value = self.part.cut.program.inputs[number]
        result = replace(value, stride=row_major(value.shape))
        self.numbers[number] = self._call(GATHER_PARAMETER, [{REFERENCE: number}, self.gathered[number]], result)

    def _scatter(self, number: int, name: str) -> int:
        """This rank's part of a gradient, over all ranks: added up in float32 where the gradient is narrower."""
        value, held = self.part.cut.program.value(number), self.held[name]
        count = prod(value.shape)
        size = held.part_size(count)
        at, flat = self.numbers[number], replace(value, shape=(count,), stride=(1,), is_weight=False)
        is_view = value.stride == row_major(value.shape)
        at = self._call("aten.reshape.default", [{REFERENCE: at}, [count]], flat, is_view=is_view)
        if missing := held.num_ranks * size - count:
            flat = replace(flat, shape=(count + missing,))
            at = self._call("aten.constant_pad_nd.default", [{REFERENCE: at}, [0, missing]], flat)
        dealt = replace(flat, shape=(held.num_ranks, size), stride=(size, 1))
        at = self._call(SCATTER_GRADIENT, [{REFERENCE: at}, name], dealt)
        result = replace(flat, shape=(size,), dtype=WIDE if value.dtype == NARROW else value.dtype)
        return self._call("aten.sum.dim_IntList", [{REFERENCE: at}, [0], False], result, dtype={"dtype": result.dtype})

    def _call(
        self, target: str, arguments: Sequence[object], result: Value, *, is_view: bool = False, **named: object
    ) -> int:
        text = arguments_text({"args": arguments, "kwargs": named})
        return self._append(Instruction(target=target, arguments=text, results=(result,), is_view=is_view))

    def _append(self, instruction: Instruction) -> int:
        self.instructions.append(instruction)
        return len(self.part.cut.program.inputs) + len(self.instructions) - 1
