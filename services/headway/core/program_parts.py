"""Cuts a program into what backends run of it. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from headway.core.backend import EAGER, Backend, BackendPlacement
from headway.core.program import Program

_PICK = "getitem"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProgram:
    """What one engine runs.

    Attributes:
        program: the instructions, with the views through which they read; it gives `outputs`, in order.
        inputs, outputs: what it reads and gives, by the numbers of the whole program's values.
    """

    backend: Backend
    program: Program
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class ProgramParts:
    """A program and how it can be cut: between operators. A view goes with each that reads through it, and the pick of
    one of several results with the operator that makes them.
    """

    program: Program

    @cached_property
    def operators(self) -> tuple[int, ...]:
        """Positions of the instructions that backends are chosen for: all but views and picks."""
        return tuple(at for at, instruction in enumerate(self.program.instructions) if not instruction.is_view)

    @cached_property
    def results(self) -> tuple[int, ...]:
        """Numbers of the values that the program gives."""
        return self.program.results or (len(self.program.inputs) + len(self.program.instructions) - 1,)

    def engines(self, placement: BackendPlacement) -> tuple[EngineProgram, ...]:
        """What the engines of a placement run, in order; where results are views of what they give, torch makes these
        at the end."""
        engines = [self._engine(engine.backend, self._owned(engine.positions)) for engine in placement.engines]
        made = {number for engine in engines for number in engine.outputs}
        left = [number for number in self.results if number >= len(self.program.inputs) and number not in made]
        if left:
            views = self.program.views_under(left)
            engines.append(self._cut(Backend(name=EAGER), views, tuple(sorted(set(left)))))
        return tuple(engines)

    def alone(self, positions: Iterable[int]) -> tuple[Program, tuple[int, ...]]:
        """Some operators as a program of their own, and the whole program's numbers of its inputs."""
        engine = self._engine(Backend(name=EAGER), self._owned(positions))
        return engine.program, engine.inputs

    @cached_property
    def _picks(self) -> dict[int, list[int]]:
        """The picks of each instruction's results."""
        found: dict[int, list[int]] = defaultdict(list)
        for at, instruction in enumerate(self.program.instructions):
            if instruction.target == _PICK:
                found[instruction.references()[0] - len(self.program.inputs)].append(at)
        return found

    @cached_property
    def _readers(self) -> dict[int, set[int]]:
        """The operators and picks that read each value, also through views."""
        found: dict[int, set[int]] = defaultdict(set)
        for at in (*self.operators, *(pick for picks in self._picks.values() for pick in picks)):
            for number in self.program.read_from_outside((at,)):
                found[number].add(at)
        return found

    @cached_property
    def _kept(self) -> frozenset[int]:
        """Values that the caller gets, or sees through views."""
        views = self.program.views_under(self.results)
        return frozenset((*self.results, *self.program.read_from_outside(views)))

    def _owned(self, positions: Iterable[int]) -> tuple[int, ...]:
        found = set(positions)
        waiting = list(found)
        while waiting:
            picks = self._picks.get(waiting.pop(), [])
            found.update(picks)
            waiting.extend(picks)
        return tuple(sorted(found))

    def _engine(self, backend: Backend, owned: Sequence[int]) -> EngineProgram:
        inside = set(owned)
        numbers = [at + len(self.program.inputs) for at in owned]
        outputs = tuple(n for n in numbers if n in self._kept or self._readers.get(n, set()) - inside)
        return self._cut(backend, owned, outputs)

    def _cut(self, backend: Backend, owned: Sequence[int], outputs: tuple[int, ...]) -> EngineProgram:
        num_inputs = len(self.program.inputs)
        inputs = self.program.read_from_outside(owned)
        places = {num_inputs + at: len(inputs) + i for i, at in enumerate(self.program.chosen(owned))}
        results = tuple(places[number] for number in outputs)
        part = replace(self.program.part(owned, with_views=True), results=results)
        return EngineProgram(backend=backend, program=part, inputs=inputs, outputs=outputs)
