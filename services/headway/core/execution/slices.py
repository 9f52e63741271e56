"""The captured step of a causal language model, unrolled over slices of each sequence's tokens (TeraPipe, dissertation
chapter 2). Pure.

A slice is the step as it is captured with so many tokens, but for what others before it change: what follows from no
token, such as positions, is the whole sequence's for the slice's tokens; attention reads the keys and values of the
slices before, too, and its backward pass gives their gradients, to which the backward passes of these add theirs. So
slices run forward in order and backward in reverse.

The unrolled step is one program. Slices of a stage are stages of their own on the same ranks, and whatever cuts,
compiles, certifies, simulates and runs a step does it with this one as well.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from headway.core.execution.execution import StageSpec
from headway.core.execution.sharding import SplitOperator, StageSharding
from headway.core.execution.strides import dense_stride
from headway.core.execution.token_step import (
    ATTENTION,
    ATTENTION_BACKWARD,
    NLL,
    NLL_BACKWARD,
    TOKENS,
    TokenStep,
    not_cut,
)
from headway.core.program import REFERENCE, Instruction, Program, Value, arguments_text

_SUM = 2
"""How a negative log-likelihood is reduced over targets."""


@dataclass(frozen=True, kw_only=True)
class SlicedStep:
    """Attributes:
    program: of all slices; its results are their losses.
    operators: by the name of an operator of the whole step, and a slice, the names of those that do its work.
    sums_losses: whether a loss is the sum over its targets; else it is their mean.
    """

    program: Program
    operators: Mapping[tuple[str, int], Sequence[str]]
    sums_losses: bool

    def stages(self, stages: Sequence[Sequence[StageSpec]]) -> tuple[StageSpec, ...]:
        """Of each stage one for each slice: with n slices stage i's slice j is number i x n + j.

        Args:
            stages: of each slice the plan's, with their shardings for its tokens.
        """
        return tuple(
            replace(
                stage,
                forward=self._names(stage.forward, at),
                backward=self._names(stage.backward, at),
                sharding=None if stage.sharding is None else self._sharding(stage, stage.sharding, at),
            )
            for same in zip(*stages, strict=True)
            for at, stage in enumerate(same)
        )

    def _sharding(self, stage: StageSpec, sharding: StageSharding, at: int) -> StageSharding:
        """Operators of the whole step are shared in a slice as the plan says; those that join slices follow them, and
        what follows from no token is computed as a whole."""
        made = ((name, each) for (name, slice_at), each in self.operators.items() if slice_at == at)
        own = {name: sliced_name(name, at) for name, each in made if sliced_name(name, at) in each}
        operators = tuple(
            SplitOperator(
                operator=own[each.operator],
                reads=tuple(replace(tile, tensor=_sliced_tensor(tile.tensor, own)) for tile in each.reads),
                result=each.result,
            )
            for each in sharding.operators
            if each.operator in own
        )
        names = (name for name in (*stage.forward, *stage.backward) if name in own)
        following = (each for name in names for each in self.operators[name, at] if each != own[name])
        return replace(sharding, operators=operators, following=tuple(following))

    def _names(self, names: Sequence[str], at: int) -> tuple[str, ...]:
        return tuple(each for name in names for each in self.operators.get((name, at), ()))


def sliced_name(operator: str, at: int) -> str:
    """Of what does an operator's work in a slice."""
    return f"{operator}@{at}"


def _sliced_tensor(tensor: str, names: Mapping[str, str]) -> str:
    """A tensor's name in a slice; a parameter's is the same in all.

    Args:
        names: of operators in the slice.
    """
    if tensor in names:
        return names[tensor]
    maker, dot, index = tensor.rpartition(".")
    return f"{names[maker]}{dot}{index}" if maker in names else tensor


def slice_step(whole: Program, parts: Mapping[int, Program], slices: Sequence[int]) -> SlicedStep:
    """Unrolls a step over slices.

    Args:
        parts: the same step captured with fewer tokens, by their number; for each length of a slice.
        slices: tokens of each, two slices or more.

    Raises:
        InvalidArgumentError: the slices are not as long as a sequence.
        FailedPreconditionError: with fewer tokens the model is not the same computation of fewer tokens.
    """
    return _Slicer(step=TokenStep(whole=whole, parts=parts, slices=slices)).make()


@dataclass(kw_only=True)
class _Slicer:
    """Numbers are those of the captured programs' values, and new ones in what is made."""

    step: TokenStep
    instructions: list[Instruction] = field(default_factory=list)
    operators: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    numbers: list[dict[int, int]] = field(default_factory=list)
    """By slice: new numbers of its program's values."""
    unsliced: dict[int, int] = field(default_factory=dict)
    """New numbers of what follows from no token, for whole sequences."""
    masks: dict[tuple[int, str], int] = field(default_factory=dict)
    context: dict[int, int] = field(default_factory=dict)
    """By number of the keys or values of an attention: those of all tokens so far."""
    returned: dict[int, int] = field(default_factory=dict)
    """By number of their gradient: that of all tokens so far, backwards."""

    def make(self) -> SlicedStep:
        self.step.check()
        count, last = len(self.step.whole.inputs), len(self.step.slices) - 1
        self.numbers = [{} for _ in self.step.slices]
        self.unsliced = {number: number for number in self.step.fixed_inputs}
        for at in sorted(self.step.tokenless):
            instruction = self.step.whole.instructions[at]
            owner = instruction.name, last if at >= self.step.begin else 0
            given = instruction.renumbered(self.unsliced, name=instruction.name)
            self.unsliced[count + at] = self._append(given, owner)
        for number in range(len(self.step.slices)):
            self._add_all(number, range(self.step.begin))
        for number in reversed(range(len(self.step.slices))):
            self._add_all(number, range(self.step.begin, len(self.step.whole.instructions)))
        gradients = {name: self._total(name, number) for name, number in self.step.whole.gradients.items()}
        program = Program(
            inputs=self.step.whole.inputs,
            instructions=tuple(self.instructions),
            names=self.step.whole.names,
            results=tuple(numbers[self.step.whole.results[0]] for numbers in self.numbers),
            gradients=gradients,
        )
        return SlicedStep(program=program, operators=self.operators, sums_losses=self.step.likelihood is not None)

    def _add_all(self, number: int, positions: Sequence[int]) -> None:
        program = self.step.parts[self.step.slices[number]]
        for at in positions:
            if at in self.step.tokenless:
                continue
            for read in program.references(at):
                if read not in self.numbers[number]:
                    self.numbers[number][read] = self._brought(number, read, at)
            self.numbers[number][len(self.step.whole.inputs) + at] = self._added(number, at, program.instructions[at])

    def _brought(self, number: int, read: int, at: int) -> int:
        """A parameter; or of what has tokens and no slice makes, such as an input, this slice's part."""
        owner = self.step.operator_behind(at), number
        part, whole = self.step.parts[self.step.slices[number]].value(read), self.step.whole.value(read)
        found = self.unsliced.get(read, read)
        for dim, (size, own) in enumerate(zip(whole.shape, part.shape, strict=True)):
            if size == own:
                continue
            if (size, own) != (sum(self.step.slices), self.step.slices[number]):
                raise not_cut(self.step.whole.name_of(read), "its tokens lie beside other things in one dim")
            name = f"{owner[0]}@{number}.{read}"
            found = self._narrowed(found, dim, self.step.firsts[number], own, name=f"{name}.{dim}")
            if prod(self._value(found).shape[:dim]) > 1:
                found = self._cloned(found, name=f"{name}.{dim}.own", owner=owner)
        return found

    def _added(self, number: int, at: int, instruction: Instruction) -> int:
        read = self.step.whole.references(at)
        numbers = self.numbers[number]
        given = instruction.renumbered(numbers, name=sliced_name(instruction.name, number))
        owner = instruction.name, number
        if instruction.target == ATTENTION:
            return self._append(self._attending(number, read, given, owner), owner)
        if instruction.target == ATTENTION_BACKWARD:
            return self._append(self._attending_back(number, read, given, owner), owner)
        if instruction.target == "getitem" and self.step.maker_of(read[0]).target == ATTENTION_BACKWARD:
            return self._picked_back(number, at, given)
        if self.step.likelihood is not None and instruction.target in (NLL, NLL_BACKWARD):
            place = (NLL, NLL_BACKWARD).index(instruction.target)
            arguments = json.loads(given.arguments)
            if tuple(read[place : place + 2]) == self.step.likelihood:
                arguments["args"][place + 3] = _SUM
                given = replace(given, arguments=arguments_text(arguments))
        return self._append(given, owner)

    def _attending(self, number: int, read: Sequence[int], given: Instruction, owner: tuple[str, int]) -> Instruction:
        """Attention to this slice and those before."""
        for operand in read[1:3]:
            own = self.numbers[number][operand]
            if number:
                value = self._value(own)
                shape = _with_tokens(value.shape, self.step.firsts[number + 1])
                joined = replace(value, shape=shape, stride=dense_stride(shape, range(len(shape), 0, -1)))
                arguments = [[_reference(self.context[operand]), _reference(own)], TOKENS]
                own = self._call("aten.cat.default", arguments, joined, name=f"{given.name}.{operand}", owner=owner)
            self.context[operand] = own
        keys = [self.context[operand] for operand in read[1:3]]
        return self._masked(number, given, 1, keys, owner) if number else given

    def _attending_back(
        self, number: int, read: Sequence[int], given: Instruction, owner: tuple[str, int]
    ) -> Instruction:
        """Its gradient, also of the keys and values of slices before. All slices read those of the last one, which
        has the others'."""
        operands = read[2:4]
        if tuple(operands) not in self.step.attentions:
            raise not_cut(owner[0], "it is the gradient of another attention")
        end, keys = self.step.firsts[number + 1], [self.context[operand] for operand in operands]
        if number < len(self.step.slices) - 1:
            keys = [
                self._narrowed(each, TOKENS, 0, end, name=f"{given.name}.{operand}")
                for each, operand in zip(keys, operands, strict=True)
            ]
        query, *others = given.results[:3]
        results = query, *(_resized(each, end) for each in others)
        return replace(self._masked(number, given, 2, keys, owner), results=results)

    def _masked(
        self, number: int, given: Instruction, place: int, keys: Sequence[int], owner: tuple[str, int]
    ) -> Instruction:
        """The attention with other keys and values, which are at a place of its arguments, and a mask where there are
        more of them than queries."""
        arguments = json.loads(given.arguments)
        arguments["args"][place : place + 2] = map(_reference, keys)
        if number:
            causal = 4 if given.target == ATTENTION else 7
            arguments["args"][causal] = False
            arguments["kwargs"]["attn_mask"] = _reference(self._mask(number, self._value(keys[0]).dtype, owner))
        return replace(given, arguments=arguments_text(arguments))

    def _mask(self, number: int, dtype: str, owner: tuple[str, int]) -> int:
        """Zero where a token of the slice sees one, else minus infinity."""
        if (number, dtype) not in self.masks:
            shape = self.step.slices[number], self.step.firsts[number + 1]
            value = Value(shape=shape, stride=(shape[1], 1), dtype=dtype)
            name = f"{owner[0]}@{number}.mask"
            options = {"dtype": {"dtype": dtype}, "device": {"device": None}}
            full = self._call(
                "aten.full.default", [list(shape), float("-inf")], value, name=f"{name}.full", owner=owner, **options
            )
            seen = [_reference(full), self.step.firsts[number] + 1]
            self.masks[number, dtype] = self._call("aten.triu.default", seen, value, name=name, owner=owner)
        return self.masks[number, dtype]

    def _picked_back(self, number: int, at: int, given: Instruction) -> int:
        """One of the gradients; of keys and values with what slices behind this one give."""
        maker, place = self.step.whole.references(at)[0], json.loads(given.arguments)["args"][1]
        if not place:
            return self._append(given, None)
        first, end = self.step.firsts[number], self.step.firsts[number + 1]
        value = given.results[0]
        owner = self.step.maker_of(maker).name, number
        total = self._append(replace(given, results=(_resized(value, end),)), None)
        key = len(self.step.whole.inputs) + at
        if key in self.returned:
            later = self._narrowed(self.returned[key], TOKENS, 0, end, name=f"{given.name}.later")
            total = self._call(
                "aten.add.Tensor",
                [_reference(total), _reference(later)],
                _resized(value, end),
                name=f"{given.name}.total",
                owner=owner,
            )
        self.returned[key] = total
        if not number:
            return total
        own = self._narrowed(total, TOKENS, first, end - first, name=f"{given.name}.own")
        return self._cloned(own, name=f"{given.name}.clone", owner=owner)

    def _total(self, name: str, number: int) -> int:
        """The gradient of a parameter: the sum of all slices'."""
        base = self.step.whole.instructions[self.step.base(number)].name
        found = self.numbers[-1][number]
        for at in reversed(range(len(self.step.slices) - 1)):
            terms = [_reference(found), _reference(self.numbers[at][number])]
            value = replace(self._value(found), is_weight=False)
            found = self._call("aten.add.Tensor", terms, value, name=f"{base}@{at}.{name}", owner=(base, at))
        return found

    def _narrowed(self, number: int, dim: int, first: int, count: int, *, name: str) -> int:
        value = self._value(number)
        shape = (*value.shape[:dim], count, *value.shape[dim + 1 :])
        arguments = arguments_text({"args": [_reference(number), dim, first, first + count], "kwargs": {}})
        view = Instruction(
            target="aten.slice.Tensor",
            arguments=arguments,
            results=(replace(value, shape=shape),),
            is_view=True,
            name=name,
        )
        return self._append(view, None)

    def _cloned(self, number: int, *, name: str, owner: tuple[str, int]) -> int:
        """Without gaps, its dims in the same order of memory."""
        value = self._value(number)
        dense = replace(value, stride=dense_stride(value.shape, value.stride))
        return self._call("aten.clone.default", [_reference(number)], dense, name=name, owner=owner)

    def _call(
        self, target: str, arguments: Sequence[Any], value: Value, *, name: str, owner: tuple[str, int], **options: Any
    ) -> int:
        text = arguments_text({"args": arguments, "kwargs": options})
        return self._append(Instruction(target=target, arguments=text, results=(value,), name=name), owner)

    def _append(self, instruction: Instruction, owner: tuple[str, int] | None) -> int:
        """Args:
        owner: the operator of the whole step, and the slice, that it is for; a view is where it is read.
        """
        self.instructions.append(instruction)
        if owner is not None and not instruction.is_view:
            self.operators.setdefault(owner, []).append(instruction.name)
        return len(self.step.whole.inputs) + len(self.instructions) - 1

    def _value(self, number: int) -> Value:
        count = len(self.step.whole.inputs)
        return self.step.whole.inputs[number] if number < count else self.instructions[number - count].results[0]


def _reference(number: int) -> dict[str, int]:
    return {REFERENCE: number}


def _with_tokens(shape: Sequence[int], count: int) -> tuple[int, ...]:
    return (*shape[:TOKENS], count, *shape[TOKENS + 1 :])


def _resized(value: Value, count: int) -> Value:
    shape = _with_tokens(value.shape, count)
    return replace(value, shape=shape, stride=dense_stride(shape, value.stride))
