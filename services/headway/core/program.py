"""A traced computation as data: what a worker runs again, whole or in part, on inputs of its own. Pure.

An operator, a layer, a stage and a model are all programs, so one way of measuring serves them all.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from headway.core.backend import BackendPlacement
from headway.core.codec import to_document
from headway.core.graph import dtype_bytes

REFERENCE = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor as an operator sees it: views as views.

    Attributes:
        stride: elements between neighbours along each dim.
        bound: of integers that are indices, how many there are to choose from; else 0.
        is_weight: a parameter or a view of one: read once a step, so that it is in no cache.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    bound: int = 0
    is_weight: bool = False

    @property
    def num_bytes(self) -> int:
        """The bytes of the memory that the value spans; a broadcast dim takes none."""
        if 0 in self.shape:
            return 0
        steps = ((size - 1) * abs(step) for size, step in zip(self.shape, self.stride, strict=True))
        return (1 + sum(steps)) * dtype_bytes(self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One call of a program.

    Attributes:
        target: the function that it calls, such as 'aten.mm.default', or 'getitem' for one of several results.
        arguments: JSON: `args` and `kwargs`, in which `{"value": i}` is the program's i-th value. Other objects
            stand for what JSON lacks (`{"dtype": "float32"}`, `device`, `layout`, `memory_format`, `complex`).
        results: the tensors that it returns.
        is_view: whether it only makes views and moves no bytes.
        name: the operator's name in the graph; empty in parts.
    """

    target: str
    arguments: str
    results: tuple[Value, ...] = ()
    is_view: bool = False
    name: str = ""

    def references(self) -> list[int]:
        """Numbers of the values that it reads, in order; each as often as it is read."""
        return list(_references(json.loads(self.arguments)))

    def renumbered(self, numbers: Mapping[int, int], *, name: str = "") -> "Instruction":
        """The same call of the values that these are the new numbers of."""
        arguments = _with_references(json.loads(self.arguments), numbers)
        return replace(self, arguments=arguments_text(arguments), name=name)


@dataclass(frozen=True, kw_only=True)
class Program:
    """Values are numbered: the inputs first, then one for each instruction.

    Attributes:
        names: of the inputs: paths of parameters and buffers, then the names of the model's inputs. Parts have none.
        results: numbers of the values that the model gives, such as the loss; parts give their last value.
        gradients: numbers of the values that are the gradients of parameters, by the parameters' names.
        placement: which backends run it; None for torch, instruction by instruction.
    """

    inputs: tuple[Value, ...]
    instructions: tuple[Instruction, ...]
    names: tuple[str, ...] = ()
    results: tuple[int, ...] = ()
    gradients: dict[str, int] = field(default_factory=dict)
    placement: BackendPlacement | None = None

    @cached_property
    def content_hash(self) -> str:
        """Equal for equal work by equal backends, wherever in a model it is."""
        anonymous = [to_document(replace(instruction, name="")) for instruction in self.instructions]
        facts = [to_document(self.inputs), anonymous]
        if self.placement is not None:
            facts += [to_document(self.placement), list(self.results)]
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def input_bytes(self) -> int:
        return sum(value.num_bytes for value in self.inputs)

    @property
    def weight_bytes(self) -> int:
        return sum(value.num_bytes for value in self.inputs if value.is_weight)

    @cached_property
    def peak_bytes(self) -> int:
        """The most bytes held at once, of inputs, which are held throughout, and of all other values, each until it was
        last read, also through views; results and gradients to the end.
        """
        return self.peak_bytes_giving_up(())

    def peak_bytes_giving_up(self, given_up: Collection[int]) -> int:
        """The same where some inputs are held until they were last read, too.

        Args:
            given_up: numbers of inputs.
        """
        num_inputs = len(self.inputs)
        owner = list(range(num_inputs))  # of each value the one that has its bytes
        last_use: dict[int, int] = {}
        for at, instruction in enumerate(self.instructions):
            read = self._references[at]
            owner.append(owner[read[0]] if instruction.is_view and read else num_inputs + at)
            for number in (*read, num_inputs + at):
                last_use[owner[number]] = at
        last_use |= {owner[number]: len(self.instructions) - 1 for number in (*self.results, *self.gradients.values())}
        held = peak = self.input_bytes
        ends: dict[int, list[int]] = {}
        for number, at in last_use.items():
            if number >= num_inputs or number in given_up:
                ends.setdefault(at, []).append(self._held_bytes(number))
        for at in range(len(self.instructions)):
            if owner[num_inputs + at] == num_inputs + at:
                held += self._held_bytes(num_inputs + at)
            peak = max(peak, held)
            held -= sum(ends.get(at, ()))
        return peak

    def positions(self) -> dict[str, int]:
        """The position of each named instruction."""
        return {instruction.name: at for at, instruction in enumerate(self.instructions) if instruction.name}

    def part(self, positions: Iterable[int], *, with_views: bool) -> "Program":
        """Some of the instructions, renumbered and without names; what they read from elsewhere becomes their inputs.

        Args:
            with_views: also the views through which they read; else views are inputs.
        """
        return self.cut(positions, with_views=with_views).program

    def cut(self, positions: Iterable[int], *, with_views: bool, results: Sequence[int] = ()) -> "Cut":
        """As `part`, with the numbers that the part's inputs have here.

        Args:
            results: numbers of the values that the part gives; one that none of its instructions makes, nor a view of
                what they make, is an input that it hands on.
        """
        num_inputs = len(self.inputs)
        chosen, outside = self._borders(positions, with_views=with_views, results=results)
        numbers = {number: i for i, number in enumerate(outside)}
        numbers |= {num_inputs + at: len(outside) + i for i, at in enumerate(chosen)}
        program = Program(
            inputs=tuple(self.value(number) for number in outside),
            instructions=tuple(self.instructions[at].renumbered(numbers) for at in chosen),
            results=tuple(numbers[number] for number in results),
        )
        return Cut(program=program, reads=outside, writes=tuple(results), positions=chosen)

    def cut_reads(self, positions: Iterable[int], *, results: Sequence[int] = ()) -> tuple[int, ...]:
        """What a cut with views would read."""
        return self._borders(positions, with_views=True, results=results)[1]

    def _borders(
        self, positions: Iterable[int], *, with_views: bool, results: Sequence[int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Positions of the instructions that a cut has, and numbers of what they read from outside."""
        num_inputs = len(self.inputs)
        wanted = [number - num_inputs for number in results if number >= num_inputs]
        viewed = {at for at in wanted if self.instructions[at].is_view}
        chosen = self.chosen(viewed.union(positions), with_views=with_views)
        inside = {num_inputs + at for at in chosen}
        read = [number for at in chosen for number in self._references[at]]
        return chosen, tuple(dict.fromkeys(number for number in (*read, *results) if number not in inside))

    def references(self, at: int) -> list[int]:
        """Numbers of the values that the instruction at a position reads."""
        return self._references[at]

    def value(self, number: int) -> Value:
        """The value of a number; of an instruction with several results the first."""
        num_inputs = len(self.inputs)
        return self.inputs[number] if number < num_inputs else self.instructions[number - num_inputs].results[0]

    def chosen(self, positions: Iterable[int], *, with_views: bool = True) -> tuple[int, ...]:
        """The instructions that a part of these has, in order."""
        found = self._with_views(positions) if with_views else set(positions)
        return tuple(sorted(at for at in found if not self._is_dangling(at, found)))

    def read_from_outside(self, positions: Iterable[int]) -> tuple[int, ...]:
        """Numbers of the values that a part of these and their views takes, in the order of the part's inputs."""
        return self._outside(self.chosen(positions))

    def views_under(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """The views, but for picks of one of several results, through which values come; in order."""
        count = len(self.inputs)
        views = (number - count for number in numbers if number >= count and self._is_plain_view(number - count))
        return tuple(sorted(at for at in self._with_views(views) if self._is_plain_view(at)))

    def _outside(self, chosen: Iterable[int]) -> tuple[int, ...]:
        inside = {len(self.inputs) + at for at in chosen}
        read = (number for at in chosen for number in self._references[at])
        return tuple(dict.fromkeys(number for number in read if number not in inside))

    def _is_plain_view(self, at: int) -> bool:
        return self.instructions[at].is_view and self.instructions[at].target != "getitem"

    @cached_property
    def _references(self) -> list[list[int]]:
        return [instruction.references() for instruction in self.instructions]

    def _with_views(self, positions: Iterable[int]) -> set[int]:
        num_inputs = len(self.inputs)
        chosen: set[int] = set()
        waiting = list(positions)
        while waiting:
            at = waiting.pop()
            if at not in chosen:
                chosen.add(at)
                sources = (number - num_inputs for number in self._references[at] if number >= num_inputs)
                waiting.extend(source for source in sources if self.instructions[source].is_view)
        return chosen

    def _is_dangling(self, at: int, chosen: set[int]) -> bool:
        """Whether it picks from several results that are not there."""
        instruction = self.instructions[at]
        return instruction.target == "getitem" and self._references[at][0] - len(self.inputs) not in chosen

    def name_of(self, number: int) -> str:
        """Of an input its name, else that of the instruction."""
        num_inputs = len(self.inputs)
        return self.names[number] if number < num_inputs else self.instructions[number - num_inputs].name

    def _held_bytes(self, number: int) -> int:
        """Of an input, or of all results of an instruction."""
        num_inputs = len(self.inputs)
        values = (self.inputs[number],) if number < num_inputs else self.instructions[number - num_inputs].results
        return sum(value.num_bytes for value in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Some instructions of a program as a program of their own.

    Attributes:
        reads: of each input of the part, its number in the whole.
        writes: of each result of the part, its number in the whole.
        positions: of its instructions in the whole.
    """

    program: Program
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    positions: tuple[int, ...] = ()


def arguments_text(arguments: Any) -> str:
    """Arguments as an instruction has them."""
    return json.dumps(arguments, separators=(",", ":"))


def _references(arguments: Any) -> Iterator[int]:
    if isinstance(arguments, dict):
        if REFERENCE in arguments:
            yield arguments[REFERENCE]
            return
        arguments = list(arguments.values())
    if isinstance(arguments, list):
        for item in arguments:
            yield from _references(item)


def _with_references(arguments: Any, numbers: Mapping[int, int]) -> Any:
    """The same arguments with every number of a value replaced."""
    if isinstance(arguments, list):
        return [_with_references(item, numbers) for item in arguments]
    if isinstance(arguments, dict):
        if REFERENCE in arguments:
            return {REFERENCE: numbers[arguments[REFERENCE]]}
        return {key: _with_references(item, numbers) for key, item in arguments.items()}
    return arguments
