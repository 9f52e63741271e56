"""One thing that is timed, and its timing."""

import math
from dataclasses import dataclass

from headway.core.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One point of a family's grid.

    Attributes:
        family: the name of a family of `headway.core.hardware.family`.
        extents: its size along each of the family's axes, in their order.
    """

    family: str
    dtype: str
    extents: tuple[int, ...]

    @property
    def key(self) -> str:
        return f"{self.family}/{self.dtype}/{'x'.join(map(str, self.extents))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTiming:
    """Attributes:
    seconds: of one call, the quickest of several rounds: neighbours on the machine only ever slow it down.
    spread: by how much the median round was slower; 0.1 is 10 %.
    """

    cell: Cell
    seconds: float
    spread: float = 0.0

    @property
    def typical_s(self) -> float:
        """The seconds of the median round. A program of many calls meets busy neighbours now and then, as the rounds
        did.
        """
        return self.seconds * (1 + self.spread)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds > 0 and math.isfinite(self.spread) and self.spread >= 0):
            raise InvalidArgumentError(
                f"{self.cell.key} cannot take {self.seconds} s with a spread of {self.spread}.",
                hint="Measure again with `headway profile hardware --fresh`.",
                field="seconds",
            )
