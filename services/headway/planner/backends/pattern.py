"""The pattern language (Collage section 2.3): which operators a backend runs as one kernel.

A pattern is matched backwards from its root, the operator whose result leaves the kernel:
`is_op("relu")(is_op("add")(is_op("convolution")(wildcard(), wildcard()), wildcard()))`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headway.core.errors import InvalidArgumentError
from headway.planner.backends.network import Network, Operators

_COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})
_NOTHING: Operators = frozenset()
_DEEPEST = 64


class OverlapError(Exception):
    """A pattern that needs one operator in two places at once; the message names the operator."""


class Pattern(ABC):
    """A pattern of operators. Patterns are immutable and can be shared between others."""

    @abstractmethod
    def matches(self, network: Network, at: int | None) -> Iterator[Operators]:
        """Yields every set of operators, itself the last, that it matches with its root at an operator.

        Args:
            at: None for a tensor that no operator makes: a weight or an input of the model.

        Raises:
            OverlapError: it needs an operator twice.
        """

    @abstractmethod
    def parts(self) -> tuple["Pattern", ...]:
        """The patterns that it is made of."""

    def __or__(self, other: "Pattern") -> "Pattern":
        """Either of two patterns."""
        return Either((self, other))

    def has_attr(self, attributes: Mapping[str, object]) -> "Pattern":
        """Only where the root has these arguments, such as `{"groups": 1, "stride": [1, 1]}`."""
        return Constrained(self, attributes={name: str(value) for name, value in attributes.items()})

    def has_shape(self, shape: tuple[int | None, ...]) -> "Pattern":
        """Only where the root's result has this shape; None stands for any size."""
        return Constrained(self, shape=shape)

    def has_dtype(self, dtype: str) -> "Pattern":
        """Only where the root's result has this dtype, by torch's name: "float32"."""
        return Constrained(self, dtype=dtype)


@dataclass(frozen=True, eq=False)
class Wildcard(Pattern):
    """Any tensor, whoever makes it; its maker is no part of the kernel."""

    def matches(self, network: Network, at: int | None) -> Iterator[Operators]:  # noqa: ARG002 - it looks at nothing
        yield _NOTHING

    def parts(self) -> tuple[Pattern, ...]:
        return ()


@dataclass(frozen=True, eq=False)
class Op(Pattern):
    """An operator by its name, and what its first inputs have to be. Called with patterns it gives the same with these
    as its inputs; an operator that commutes may have its first two in either order."""

    name: str
    operands: tuple[Pattern, ...] = ()

    def __call__(self, *operands: Pattern) -> "Op":
        return Op(self.name, operands)

    def matches(self, network: Network, at: int | None) -> Iterator[Operators]:
        if at is None or not is_named(network.operator(at).target, self.name):
            return
        inputs = network.operator(at).inputs
        makers = [network.flow.producer.get(name) for name in inputs]
        if len(makers) < len(self.operands):
            return
        seen: set[Operators] = set()
        for order in self._orders():
            for below in _together(network, order, makers[: len(order)]):
                found = _united(network, below, frozenset({at}))
                if found not in seen:
                    seen.add(found)
                    yield found

    def parts(self) -> tuple[Pattern, ...]:
        return self.operands

    def _orders(self) -> Iterator[tuple[Pattern, ...]]:
        yield self.operands
        if self.name in _COMMUTATIVE and len(self.operands) > 1:
            first, second, *others = self.operands
            yield (second, first, *others)


@dataclass(frozen=True, eq=False)
class Either(Pattern):
    """Any of several patterns."""

    choices: tuple[Pattern, ...]

    def matches(self, network: Network, at: int | None) -> Iterator[Operators]:
        seen: set[Operators] = set()
        for choice in self.choices:
            for found in choice.matches(network, at):
                if found not in seen:
                    seen.add(found)
                    yield found

    def parts(self) -> tuple[Pattern, ...]:
        return self.choices


@dataclass(frozen=True, eq=False)
class Constrained(Pattern):
    """A pattern whose root is constrained; see `Pattern.has_attr`, `has_shape` and `has_dtype`."""

    pattern: Pattern
    attributes: Mapping[str, str] = field(default_factory=dict)
    shape: tuple[int | None, ...] | None = None
    dtype: str = ""

    def __call__(self, *operands: Pattern) -> "Constrained":
        if not isinstance(self.pattern, Op | Constrained):
            raise InvalidArgumentError(
                "Only an operator takes inputs.", hint="Call is_op(NAME) with them.", field="pattern"
            )
        return Constrained(self.pattern(*operands), self.attributes, self.shape, self.dtype)

    def matches(self, network: Network, at: int | None) -> Iterator[Operators]:
        if at is not None and self._allows(network, at):
            yield from self.pattern.matches(network, at)

    def parts(self) -> tuple[Pattern, ...]:
        return (self.pattern,)

    def _allows(self, network: Network, at: int) -> bool:
        given = network.operator(at).attributes
        if any(given.get(name) != value for name, value in self.attributes.items()):
            return False
        output = network.output(at)
        if self.dtype and (output is None or output.dtype != self.dtype):
            return False
        if self.shape is None:
            return True
        if output is None or len(output.shape) != len(self.shape):
            return False
        return all(size in (None, real) for size, real in zip(self.shape, output.shape, strict=True))


@dataclass(frozen=True, eq=False)
class Repeated(Pattern):
    """A chain of operators that each match, each reading the one before; below the last comes `start`."""

    step: Pattern
    most: int
    start: Pattern = field(default_factory=Wildcard)

    def matches(self, network: Network, at: int | None) -> Iterator[Operators]:
        yield from self._chains(network, at, self.most)

    def parts(self) -> tuple[Pattern, ...]:
        return (self.step, self.start)

    def _chains(self, network: Network, at: int | None, left: int) -> Iterator[Operators]:
        if at is None or left == 0:
            return
        for step in self.step.matches(network, at):
            for name in network.operator(min(step)).inputs:
                source = network.flow.producer.get(name)
                for below in self.start.matches(network, source):
                    yield _united(network, below, step)
                for below in self._chains(network, source, left - 1):
                    yield _united(network, below, step)


@dataclass(frozen=True, eq=False)
class Dominator(Pattern):
    """An operator through which every path from `parent` goes, where all between them match `path`."""

    parent: Pattern
    path: Pattern
    child: Pattern

    def matches(self, network: Network, at: int | None) -> Iterator[Operators]:
        if at is None:
            return
        for below in self.child.matches(network, at):
            for source in self._sources(network, at):
                between = network.between(source, at) - {at}
                if all(any(True for _ in self.path.matches(network, each)) for each in between):
                    for found in self.parent.matches(network, source):
                        yield found | between | below

    def parts(self) -> tuple[Pattern, ...]:
        return (self.parent, self.path, self.child)

    def _sources(self, network: Network, at: int) -> Iterator[int]:
        """Operators that it is reached from through none but those that match `path`, the nearest first."""
        seen = {at}
        waiting = list(network.predecessors[at])
        for source in waiting:
            if source in seen:
                continue
            seen.add(source)
            if any(True for _ in self.parent.matches(network, source)):
                yield source
            if any(True for _ in self.path.matches(network, source)):
                waiting.extend(network.predecessors[source])


def is_op(name: str) -> Op:
    """An operator by its short name ("convolution") or its whole one ("aten.convolution.default")."""
    return Op(name)


def wildcard() -> Wildcard:
    """Any tensor."""
    return Wildcard()


def repeated(step: Pattern, *, most: int, start: Pattern | None = None) -> Repeated:
    """One to `most` operators in a row that each match `step`; the first of them reads what matches `start`."""
    if not 1 <= most <= _DEEPEST:
        raise InvalidArgumentError(f"most must be 1 to {_DEEPEST}, not {most}.", field="most")
    return Repeated(step, most, start or Wildcard())


def dominator(parent: Pattern, path: Pattern, child: Pattern) -> Dominator:
    """`child` where every path from `parent` comes to it through operators that match `path`."""
    return Dominator(parent, path, child)


def is_named(target: str, name: str) -> bool:
    """Whether a target such as 'aten.relu.default' has this whole or short name."""
    return target == name or target.split(".")[1:2] == [name]


def check_pattern(pattern: Pattern, *, name: str) -> None:
    """Raises InvalidArgumentError where a pattern contains itself, or is nothing but wildcards."""
    _check_finite(pattern, (), name)
    if not _has_op(pattern):
        raise InvalidArgumentError(
            f"The pattern '{name}' names no operator.", hint="Its root has to be is_op(NAME).", field="pattern"
        )


def _check_finite(pattern: Pattern, above: tuple[Pattern, ...], name: str) -> None:
    if any(pattern is each for each in above):
        raise InvalidArgumentError(
            f"The pattern '{name}' is cyclic: it contains itself.",
            hint="Say with repeated(..., most=N) how often a step comes again.",
            field="pattern",
        )
    for part in pattern.parts():
        _check_finite(part, (*above, pattern), name)


def _has_op(pattern: Pattern) -> bool:
    return isinstance(pattern, Op) or any(_has_op(part) for part in pattern.parts())


def _together(network: Network, patterns: tuple[Pattern, ...], makers: list[int | None]) -> Iterator[Operators]:
    """Yields the union of a match of each pattern, in all combinations."""
    if not patterns:
        yield _NOTHING
        return
    for first in patterns[0].matches(network, makers[0]):
        for others in _together(network, patterns[1:], makers[1:]):
            yield _united(network, first, others)


def _united(network: Network, some: Operators, others: Operators) -> Operators:
    if shared := some & others:
        raise OverlapError(network.operator(min(shared)).name)
    return some | others
