"""The graph-level optimiser: evolves which kernels go to which graph library (Collage section 2.4.3).

It is a function of what was measured: it says which placements it wants to know next, and begins again from the start
with every answer. So it can be ended, resumed and repeated at any time.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Digits = tuple[int, ...]
"""For each kernel of the op-level placement 0 to keep it, or the number of the library that runs it instead."""

_MUTATIONS = 2.0
"""Digits that change in a child, on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """How long to search.

    Attributes:
        num_libraries: graph libraries that a digit can name.
        population: placements of a generation.
        generations: after the seeds.
        patience: generations without a better placement after which it ends.
    """

    num_libraries: int
    population: int = 8
    generations: int = 4
    patience: int = 2
    seed: int = 0

    def wanted(self, seeds: Sequence[Digits], measured: Mapping[Digits, float]) -> tuple[Digits, ...]:
        """The placements to measure next; empty where it has ended.

        Args:
            seeds: the first generation: the op-level placement, and each library alone.
            measured: seconds; infinite where a placement can't run.
        """
        generator = random.Random(self.seed)
        known = dict.fromkeys(seeds)
        without_gain = 0
        best_s = float("inf")
        newest: Sequence[Digits] = tuple(known)
        for _ in range(self.generations + 1):
            if missing := tuple(each for each in newest if each not in measured):
                return missing
            now_s = min((measured[each] for each in known), default=best_s)
            without_gain = 0 if now_s < best_s else without_gain + 1
            best_s = now_s
            if without_gain >= self.patience:
                return ()
            parents = sorted(known, key=lambda each: (measured[each], each))[: max(2, self.population // 2)]
            newest = tuple(self._children(parents, known, generator))
            if not newest:
                return ()
            known |= dict.fromkeys(newest)
        return ()

    def _children(
        self, parents: Sequence[Digits], known: Mapping[Digits, None], generator: random.Random
    ) -> Iterator[Digits]:
        """Yields new placements, as many as make a generation or as are found in a few attempts."""
        if not parents or not parents[0] or not self.num_libraries:
            return
        made: set[Digits] = set()
        for _ in range(8 * self.population):
            if len(made) == self.population:
                return
            mother, father = generator.choice(parents), generator.choice(parents)
            child = self._mutated(crossed(mother, father, generator), generator)
            if child not in known and child not in made:
                made.add(child)
                yield child

    def _mutated(self, digits: Digits, generator: random.Random) -> Digits:
        chance = min(1.0, _MUTATIONS / len(digits))
        return tuple(
            generator.randint(0, self.num_libraries) if generator.random() < chance else digit for digit in digits
        )


def crossed(mother: Digits, father: Digits, generator: random.Random) -> Digits:
    """Two-point crossover: between two random places the digits are the father's."""
    first, last = sorted(generator.randint(0, len(mother)) for _ in range(2))
    return mother[:first] + father[first:last] + mother[last:]
