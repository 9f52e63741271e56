"""Cuts a captured training step into the parts that the stages of a plan run. Pure.

Of each stage: its forward pass; its backward pass whole, or the gradients that leave the stage and the rest apart; and
where it recomputes, what of the forward pass the backward pass needs again. Parts are found by ancestors, so nothing is
computed that no gradient needs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from headway.core.errors import InvalidArgumentError
from headway.core.execution.execution import ActionKind
from headway.core.execution.sharding import SlotTile
from headway.core.program import Cut, Program

_SUM = "aten.add.Tensor"
SEED = "aten.ones_like.default"
"""Makes the gradient that a loss has by itself."""
_RANDOM = (
    "bernoulli",
    "native_dropout",
    "rand",
    "rand_like",
    "randn",
    "randn_like",
    "normal",
    "uniform",
    "exponential",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOperators:
    """Names of a stage's operators."""

    forward: tuple[str, ...]
    backward: tuple[str, ...]
    recomputes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePart:
    """Attributes:
    cut: its results are the values that other parts read, then gradients.
    gradients: the parameters of the last results, in order.
    is_random: whether it draws numbers.
    gathered, scattered: see `PartSpec`.
    """

    stage: int
    kind: ActionKind
    cut: Cut
    gradients: tuple[str, ...] = ()
    is_random: bool = False
    gathered: tuple[str, ...] = ()
    scattered: tuple[str, ...] = ()

    @property
    def writes(self) -> tuple[int, ...]:
        """Values that other parts read."""
        return self.cut.writes[: len(self.cut.writes) - len(self.gradients)]


@dataclass(frozen=True, kw_only=True)
class StepParts:
    """Attributes:
    names: of the program's inputs.
    losses, seeds: values of the program; see `Execution`.
    parameters: of each stage, those that its parts read.
    tiles: by stage, how its ranks hold what stages hand each other, where not whole.
    """

    names: tuple[str, ...]
    losses: tuple[int, ...]
    seeds: tuple[int, ...]
    parts: tuple[StagePart, ...]
    parameters: tuple[tuple[str, ...], ...]
    tiles: Mapping[int, tuple[SlotTile, ...]] = field(default_factory=dict)


def cut_stages(program: Program, stages: Sequence[StageOperators], *, splits: bool, num_slices: int = 1) -> StepParts:
    """Cuts a step.

    A parameter that several stages read has its gradient's terms added where they are made; they are one gradient once
    the ranks that hold it have added theirs up.

    Args:
        splits: whether gradients that leave a stage are a part of their own.
        num_slices: that the program is unrolled over.

    Raises:
        InvalidArgumentError: the step gives no loss, an operator writes onto what others read, or is in no stage or in
            two.
    """
    return _Cutter(program=program, stages=stages, splits=splits, num_slices=num_slices).cut()


@dataclass(frozen=True, kw_only=True)
class _Cutter:
    program: Program
    stages: Sequence[StageOperators]
    splits: bool
    num_slices: int

    def cut(self) -> StepParts:
        parts = [*self._forward_and_again(), *self._backward()]
        reads = [self._state_names(stage, parts) for stage in range(len(self.stages))]
        return StepParts(
            names=self.program.names,
            losses=self.losses,
            seeds=self.seeds,
            parts=tuple(parts),
            parameters=tuple(reads),
        )

    @cached_property
    def num_inputs(self) -> int:
        return len(self.program.inputs)

    @cached_property
    def losses(self) -> tuple[int, ...]:
        """One, or one of each slice."""
        numbers = self.program.results
        known = [number for number in numbers[:1] if number >= self.num_inputs]
        if not known or self.program.value(known[0]).shape != () or not self.program.gradients:
            raise InvalidArgumentError(
                "The captured step gives no loss: its first result is not one number that parameters change.",
                hint="Let the module return its loss, or name a loss that Headway knows.",
                field="loss",
            )
        return numbers if self.num_slices > 1 else numbers[:1]

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The gradients of the losses by themselves, which autograd makes first."""
        found: dict[int, int] = {}
        for at, instruction in enumerate(self.program.instructions):
            if instruction.target == SEED and self.program.references(at)[0] in self.losses:
                found.setdefault(self.program.references(at)[0], self.num_inputs + at)
        if len(found) == len(self.losses):
            return tuple(found[loss] for loss in self.losses)
        raise InvalidArgumentError(
            "The captured step has no gradient of its loss.", hint="Capture it for training.", field="loss"
        )

    @cached_property
    def stage_of(self) -> dict[int, tuple[int, bool]]:
        """By position: the stage, and whether it is of the backward pass."""
        positions = self.program.positions()
        found: dict[int, tuple[int, bool]] = {}
        for number, stage in enumerate(self.stages):
            for names, is_backward in ((stage.forward, False), (stage.backward, True)):
                for name in names:
                    at = positions.get(name)
                    if at is None or at in found:
                        why = "is not in the captured step" if at is None else f"is in stage {found[at][0]} too"
                        raise InvalidArgumentError(
                            f"Operator {name} of stage {number} {why}.", hint="Make the plan anew.", field="plan"
                        )
                    found[at] = number, is_backward
        for at, instruction in enumerate(self.program.instructions):
            if instruction.is_view:
                continue
            if at not in found:
                raise InvalidArgumentError(
                    f"Operator {instruction.name} is in no stage.", hint="Make the plan anew.", field="plan"
                )
            if instruction.target.rpartition(".")[0].endswith("_"):
                self._check_in_place(at, found)
        return found

    def _check_in_place(self, at: int, places: Mapping[int, tuple[int, bool]]) -> None:
        """An operator may write onto what the operator before it in its stage made for it alone, as dropout does."""
        onto = self.program.references(at)[0]
        maker = onto - self.num_inputs
        readers = [other for other in range(len(self.program.instructions)) if onto in self.program.references(other)]
        if maker < 0 or places.get(maker) != places[at] or readers != [at]:
            name, target = self.program.instructions[at].name, self.program.instructions[at].target
            raise InvalidArgumentError(
                f"Operator {name} ({target}) writes in place onto what others read too, which no stage can run.",
                hint="Write the model without it, such as relu in the place of relu_.",
                field="model",
            )

    @cached_property
    def terms(self) -> dict[str, tuple[int, ...]]:
        """Of each parameter the values whose sum is its gradient: several where several stages make them."""
        found = {}
        for name, number in self.program.gradients.items():
            several = tuple(self._summands(number))
            makers = {self._stage(each) for each in several}
            found[name] = several if len(makers) > 1 else (number,)
        return found

    def _summands(self, number: int) -> Iterator[int]:
        at = number - self.num_inputs
        is_sum = at >= 0 and self.program.instructions[at].target == _SUM and self.stage_of[at][1]
        operands = self.program.references(at) if is_sum else []
        if len(operands) == 2 and '"kwargs":{}' in self.program.instructions[at].arguments:
            for each in operands:
                yield from self._summands(each)
        else:
            yield number

    @cached_property
    def needed(self) -> frozenset[int]:
        """Positions that the loss or a gradient needs."""
        numbers = [*self.losses, *(number for terms in self.terms.values() for number in terms)]
        return frozenset(self._ancestors(numbers, within=None))

    @cached_property
    def constant(self) -> frozenset[int]:
        """Positions of what depends on nothing, such as positions and masks: each stage makes it for itself."""
        found: set[int] = set()
        for at, instruction in enumerate(self.program.instructions):
            read = self.program.references(at)
            if all(number - self.num_inputs in found for number in read) and not draws(instruction.target):
                found.add(at)
        return frozenset(found)

    @cached_property
    def reads_of(self) -> dict[tuple[int, bool], tuple[int, ...]]:
        """By stage and pass: what all of its operators read of others, and their gradients."""
        return {
            (stage, is_backward): self._reads(self._own(stage, is_backward=is_backward), stage)
            for stage in range(len(self.stages))
            for is_backward in (False, True)
        }

    @cached_property
    def holders(self) -> dict[str, list[int]]:
        """By parameter: the stages that read it."""
        found: dict[str, list[int]] = {}
        for (stage, _), reads in self.reads_of.items():
            for number in reads:
                if number < self.num_inputs and stage not in found.setdefault(self.program.names[number], []):
                    found[self.program.names[number]].append(stage)
        return found

    def _own(self, stage: int, *, is_backward: bool) -> set[int]:
        seeds = {seed - self.num_inputs for seed in self.seeds}
        own = {at for at, place in self.stage_of.items() if place == (stage, is_backward)}
        return (own - seeds) & self.needed

    def _forward_and_again(self) -> Iterator[StagePart]:
        wanted: dict[int, set[int]] = {}
        for (reader, _), reads in self.reads_of.items():
            for number in reads:
                if number >= self.num_inputs:
                    wanted.setdefault(number, set()).add(reader)
        for stage, given in enumerate(self.stages):
            own = self._own(stage, is_backward=False)
            made = [n for n in sorted(wanted) if self._base(n) in own]
            made += [loss for loss in self.losses if self._base(loss) in own and loss not in made]
            if not given.recomputes:
                yield self._part(stage, ActionKind.FORWARD, own, made)
                continue
            leaving = [n for n in made if n in self.losses or wanted[n] - {stage}]
            saved = [n for n in made if n not in leaving]
            drawn = {at for at in own if draws(self.program.instructions[at].target)}
            again = self._ancestors(saved, within=own - drawn) & (own - drawn)
            read = self._reads(again, stage, saved)
            kept = [n for n in read if n >= self.num_inputs and self._base(n) in own]
            yield self._part(stage, ActionKind.FORWARD, own, [*leaving, *(n for n in kept if n not in leaving)])
            remade = [n for n in saved if n not in kept]
            if remade:
                yield self._part(stage, ActionKind.RECOMPUTE, again, remade)

    def _backward(self) -> Iterator[StagePart]:
        for stage in range(len(self.stages)):
            own = self._own(stage, is_backward=True)
            others = {n for (other, _), reads in self.reads_of.items() if other != stage for n in reads}
            leaving = sorted(n for n in others if self._base(n) in own)
            gradients = self._gradients(stage)
            leaving += [n for n in self._handed_on(stage, own) if n not in leaving]
            if not self.splits:
                yield self._part(stage, ActionKind.BACKWARD, own, leaving, gradients)
                continue
            first = self._ancestors(leaving, within=own) & own
            rest = own - first
            between = [n for n in self._reads(rest, stage, [n for _, n in gradients]) if n not in leaving]
            between = [n for n in between if self._base(n) in first]
            if first:
                yield self._part(stage, ActionKind.INPUT, first, [*leaving, *between])
            if rest or gradients:
                yield self._part(stage, ActionKind.WEIGHT, rest, (), gradients)

    def _handed_on(self, stage: int, own: set[int]) -> Iterator[int]:
        """Terms of gradients that this stage makes of parameters that it does not hold."""
        for name, terms in self.terms.items():
            for number in terms:
                if self._base(number) in own and stage not in self.holders.get(name, ()):
                    yield number

    def _gradients(self, stage: int) -> list[tuple[str, int]]:
        """Parameters and the terms of their gradients that this stage adds up."""
        found = []
        for name, terms in self.terms.items():
            holders = self.holders.get(name, [])
            for number in terms:
                maker = self._stage(number)
                if (maker if maker in holders or not holders else holders[-1]) == stage:
                    found.append((name, number))
        return found

    def _part(
        self,
        stage: int,
        kind: ActionKind,
        positions: set[int],
        writes: Iterable[int],
        gradients: Sequence[tuple[str, int]] = (),
    ) -> StagePart:
        cut = self._cut(positions, stage, results=[*writes, *(number for _, number in gradients)])
        is_random = any(draws(self.program.instructions[at].target) for at in positions)
        return StagePart(
            stage=stage, kind=kind, cut=cut, gradients=tuple(name for name, _ in gradients), is_random=is_random
        )

    def _cut(self, positions: Iterable[int], stage: int, *, results: Sequence[int] = ()) -> Cut:
        return self.program.cut(self._with_constants(positions, stage, results), with_views=True, results=results)

    def _reads(self, positions: Iterable[int], stage: int, results: Sequence[int] = ()) -> tuple[int, ...]:
        return self.program.cut_reads(self._with_constants(positions, stage, results), results=results)

    def _with_constants(self, positions: Iterable[int], stage: int, results: Sequence[int]) -> set[int]:
        """With the constants that other stages make."""
        chosen = set(positions)
        while True:
            reads = self.program.cut_reads(chosen, results=results)
            made = {self._base(number) for number in reads if number >= self.num_inputs}
            more = {at for at in made if at in self.constant and self.stage_of[at][0] != stage} - chosen
            if not more:
                return chosen
            chosen |= more

    def _ancestors(self, numbers: Iterable[int], *, within: set[int] | None) -> set[int]:
        """Positions of all that values are made of, views too; of operators only those `within`."""
        found: set[int] = set()
        waiting = [number - self.num_inputs for number in numbers if number >= self.num_inputs]
        while waiting:
            at = waiting.pop()
            is_inside = within is None or at in within or self.program.instructions[at].is_view
            if at not in found and is_inside:
                found.add(at)
                waiting += [n - self.num_inputs for n in self.program.references(at) if n >= self.num_inputs]
        return found

    def _base(self, number: int) -> int:
        """The position of the operator whose memory a value is; below 0 for an input."""
        at = number - self.num_inputs
        while at >= 0 and self.program.instructions[at].is_view:
            read = self.program.references(at)
            at = read[0] - self.num_inputs if read else -1
        return at

    def _stage(self, number: int) -> int:
        base = self._base(number)
        return self.stage_of[base][0] if base >= 0 else -1

    def _state_names(self, stage: int, parts: Sequence[StagePart]) -> tuple[str, ...]:
        numbers = {n for part in parts if part.stage == stage for n in part.cut.reads if n < self.num_inputs}
        names = {self.program.names[number] for number in numbers}
        names |= {name for part in parts if part.stage == stage for name in part.gradients}
        return tuple(name for name in self.program.gradients if name in names)


def draws(target: str) -> bool:
    """Whether an operator draws numbers."""
    return target.partition(".")[2].partition(".")[0].removesuffix("_") in _RANDOM
