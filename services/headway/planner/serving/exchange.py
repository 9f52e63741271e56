"""Moves groups to other models, and exchanges them, as long as the slower of two models gains. Pure.

Groups that are alike are one kind: which of them a model has makes no difference, so each pair of a model and a kind is
tried once, and all of them at the same time.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headway.planner.serving.replica_bounds import ReplicaBounds

LEAST_GAIN = 1e-9
"""Of a total, that counts as one: less is rounding, and would go round in circles."""


def exchanged(
    rates: Sequence[Sequence[float]], model_of: Mapping[int, int], bounds: Sequence[ReplicaBounds]
) -> dict[int, int]:
    """An allocation from which no group moves, and no two change places, so that the slower of two models gains.

    Each step is for the slowest model that one helps, and raises the sorted totals, so it ends.

    Args:
        rates: `rates[model][group]`, tokens per second of a replica; 0 where the model does not fit.
        model_of: model by group.
        bounds: by model.
    """
    model_of = dict(model_of)
    kinds: dict[tuple[float, ...], int] = {}
    kind_of = [kinds.setdefault(column, len(kinds)) for column in zip(*rates, strict=True)]
    fleet = _Fleet(rates=np.array(list(kinds)).T, bounds=bounds)
    while steps := fleet.best_steps([(model, kind_of[group]) for group, model in model_of.items()]):
        for model, kind, taker in steps:
            group = next(group for group, giver in model_of.items() if (giver, kind_of[group]) == (model, kind))
            model_of[group] = taker
    return model_of


_Step = tuple[int, int, int]
"""The model that gives, the kind of the group, and the model that takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleet:
    """Attributes:
    rates: [models, kinds].
    """

    rates: npt.NDArray[np.float64]
    bounds: Sequence[ReplicaBounds]

    def best_steps(self, pairs: Sequence[tuple[int, int]]) -> list[_Step]:
        """The move, or the two moves of an exchange, that help the slowest model most; none where none helps.

        Args:
            pairs: the model and the kind of each group.
        """
        held = Counter(pairs)
        models, kinds = np.array(list(held)).T
        totals = np.zeros(len(self.rates))
        np.add.at(totals, models, self.rates[models, kinds] * np.array(list(held.values())))
        counts = Counter(model for model, _ in pairs)
        can_give = np.array([of_model.allows(counts[each] - 1) for each, of_model in enumerate(self.bounds)])
        can_take = np.array([of_model.allows(counts[each] + 1) for each, of_model in enumerate(self.bounds)])
        given, taken = self.rates[models, kinds][:, None], self.rates[:, kinds].T
        moves = _Candidates.of(
            totals[models][:, None],
            totals[None, :],
            less=-given,
            more=taken,
            may=(taken > 0)
            & can_give[models][:, None]
            & can_take[None, :]
            & (models[:, None] != np.arange(len(totals))),
        )
        swapped = self.rates[models[:, None], kinds[None, :]]  # what each would have of the others' groups
        swaps = _Candidates.of(
            totals[models][:, None],
            totals[models][None, :],
            less=swapped - given,
            more=swapped.T - given.T,
            may=(swapped > 0) & (swapped.T > 0) & (models[:, None] != models[None, :]),
        )
        if moves.best is not None and moves.is_better_than(swaps):
            first, taker = moves.best
            return [(int(models[first]), int(kinds[first]), taker)]
        if swaps.best is None:
            return []
        first, second = swaps.best
        one, other = (int(models[first]), int(kinds[first])), (int(models[second]), int(kinds[second]))
        return [(*one, other[0]), (*other, one[0])]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates:
    """Attributes:
    best: where in the matrix; None where nothing gains.
    before, after: the totals of the slower of the two models.
    """

    best: tuple[int, int] | None
    before: float = 0.0
    after: float = 0.0

    @classmethod
    def of(
        cls,
        first: npt.NDArray[np.float64],
        second: npt.NDArray[np.float64],
        *,
        less: npt.NDArray[np.float64],
        more: npt.NDArray[np.float64],
        may: npt.NDArray[np.bool_],
    ) -> "_Candidates":
        """The best of a matrix: two totals, what each gains, and whether it may be."""
        before = np.minimum(first, second)
        after = np.minimum(first + less, second + more)
        gains = may & (after > before * (1 + LEAST_GAIN))
        if not gains.any():
            return cls(best=None)
        slowest = before[gains].min()
        at = int(np.where(gains & (before == slowest), after, -np.inf).argmax())
        place = divmod(at, before.shape[1])
        return cls(best=place, before=float(slowest), after=float(after[place]))

    def is_better_than(self, other: "_Candidates") -> bool:
        return other.best is None or (self.before, -self.after) <= (other.before, -other.after)
