"""The pattern registry: what each backend can run of a graph."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headway.core.backend import Backend
from headway.core.errors import InvalidArgumentError
from headway.planner.backends.network import Network, Operators
from headway.planner.backends.pattern import OverlapError, Pattern, check_pattern
from headway.planner.backends.rule import PatternRule, generate


@dataclass(frozen=True, slots=True)
class Match:
    """Operators that a backend can run as one kernel, and by what it was found."""

    operators: Operators
    backend: Backend
    pattern: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A match that can't be used: a pattern that was met at an operator, and why it is refused there."""

    backend: Backend
    pattern: str
    operator: str
    reason: str

    def __str__(self) -> str:
        return f"{self.backend}'s pattern '{self.pattern}' is refused at {self.operator}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Matches:
    """All matches in a graph, each set of operators once for a backend, and those that were refused."""

    found: tuple[Match, ...]
    refused: tuple[Refusal, ...]


@dataclass(slots=True)
class Registry:
    """Patterns and pattern rules of backends, by the backends' names."""

    _patterns: dict[str, dict[str, Pattern]] = field(default_factory=lambda: defaultdict(dict))
    _rules: dict[str, list[PatternRule]] = field(default_factory=lambda: defaultdict(list))

    def add_backend_pattern(self, backend: str, pattern: Pattern, *, name: str = "") -> None:
        """Says that a backend runs what matches a pattern as one kernel.

        Raises:
            InvalidArgumentError: the pattern is cyclic or names no operator, or the backend has one of that name.
        """
        known = self._patterns[backend]
        name = name or f"pattern-{len(known)}"
        check_pattern(pattern, name=name)
        if name in known:
            raise InvalidArgumentError(
                f"{backend} has a pattern '{name}' already.", hint="Give it another name.", field="name"
            )
        known[name] = pattern

    def add_backend_pattern_rule(self, backend: str, rule: PatternRule) -> None:
        """Says that a backend runs whatever a rule allows."""
        self._rules[backend].append(rule)

    def matches(self, network: Network, backends: Iterable[Backend]) -> Matches:
        """Finds what each backend can run. Variants of a backend have its patterns."""
        found: dict[tuple[Backend, Operators], Match] = {}
        refused: list[Refusal] = []
        for backend in backends:
            for each in self._met(network, backend):
                if isinstance(each, Refusal):
                    refused.append(each)
                else:
                    found.setdefault((backend, each.operators), each)
        return Matches(tuple(found.values()), tuple(refused))

    def _met(self, network: Network, backend: Backend) -> Iterator[Match | Refusal]:
        for rule in self._rules[backend.name]:
            for operators in generate(network, rule):
                yield Match(operators, backend, type(rule).__name__)
        for name, pattern in self._patterns[backend.name].items():
            for at in range(len(network.graph.operators)):
                yield from _met_at(network, at, backend, name, pattern)


def _met_at(network: Network, at: int, backend: Backend, name: str, pattern: Pattern) -> Iterator[Match | Refusal]:
    here = network.operator(at).name
    try:
        for operators in pattern.matches(network, at):
            if reason := network.why_illegal(operators):
                yield Refusal(backend, name, here, reason)
            else:
                yield Match(operators, backend, name)
    except OverlapError as error:
        yield Refusal(backend, name, here, f"it overlaps itself: it needs {error} twice")
