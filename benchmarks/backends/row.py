"""What is measured of one network with one number of threads, and what follows from it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, log
from statistics import median

LOOSE_ERROR = 1e-2
CHOICE, LOOSE_CHOICE = "choice", f"choice within {LOOSE_ERROR:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lap:
    """One finalist: median and minimum of the runs that count, how many these are, and how many were contended."""

    seconds: float
    least_s: float
    num_runs: int
    num_contended: int
    deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Attributes:
    contest: finalists by name: float32 backends that run all, the choice, and the choice within the larger error.
    faults: of those that did not run, why.
    engines: backends of the choice's engines, in order; of the other choice as well.
    predicted_s, op_level_s: sum of the best kernels, and those as measured together; None where it was not come to.
    ablation: seconds of the choice among the first one, two ... backends, by the last one's name.
    search_s: with everything measured before.
    measuring_s: of the first search.
    """

    network: str
    num_threads: int
    date: str
    load_average: float
    contest: dict[str, Lap]
    faults: dict[str, str] = field(default_factory=dict)
    engines: list[str] = field(default_factory=list)
    loose_engines: list[str] = field(default_factory=list)
    predicted_s: float | None = None
    op_level_s: float | None = None
    ablation: dict[str, float] = field(default_factory=dict)
    search_s: float = 0.0
    measuring_s: float = 0.0
    num_measured: int = 0

    @property
    def single(self) -> dict[str, float]:
        """Seconds of the float32 backends that run all."""
        return {name: lap.seconds for name, lap in self.contest.items() if name not in (CHOICE, LOOSE_CHOICE)}

    def gain(self, over: str) -> float | None:
        """How many times as fast as a backend the choice is."""
        laps = self.contest
        return laps[over].seconds / laps[CHOICE].seconds if over in laps and CHOICE in laps else None

    def gain_over_eager(self, name: str) -> float:
        """How many times as fast as torch a finalist is; 0 where one of them did not run."""
        laps = self.contest
        return laps["eager"].seconds / laps[name].seconds if name in laps and "eager" in laps else 0.0

    @property
    def against_best(self) -> float:
        """Seconds of the choice as a share of the best single backend's."""
        return self.contest[CHOICE].seconds / min(self.single.values())

    @property
    def loose_gain(self) -> float | None:
        """How many times as fast as the best single float32 backend the choice within the larger error is."""
        if LOOSE_CHOICE not in self.contest:
            return None
        return min(self.single.values()) / self.contest[LOOSE_CHOICE].seconds

    @property
    def prediction_error(self) -> float | None:
        if not self.predicted_s or not self.op_level_s:
            return None
        return abs(self.predicted_s / self.op_level_s - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A figure over all rows beside what is wanted of it."""

    what: str
    figure: float
    wanted: str
    is_met: bool


def targets(rows: Sequence[Row]) -> list[Target]:
    """What the rows come to; of figures that no row has, nothing."""
    found = []
    for over, least in (("eager", 2.3), ("inductor", 1.2), ("onnxruntime", 1.15)):
        found += _least(f"geometric mean over {over}", _mean(row.gain(over) for row in rows), least)
    found += _least("geometric mean within 1e-2 over the best in float32", _mean(row.loose_gain for row in rows), 1.4)
    found += _most("the choice over the best single backend, worst", [row.against_best for row in rows], 1.02, max)
    errors = [error for row in rows if (error := row.prediction_error) is not None]
    found += _most("predicted over measured whole, median error", errors, 0.10, median)
    found += _most("seconds of a search with everything measured, longest", [row.search_s for row in rows], 5.0, max)
    return found


def _mean(gains: Iterable[float | None]) -> float | None:
    known = [gain for gain in gains if gain is not None]
    return exp(sum(map(log, known)) / len(known)) if known else None


def _least(what: str, figure: float | None, least: float) -> list[Target]:
    if figure is None:
        return []
    return [Target(what=what, figure=figure, wanted=f">= {least:g}", is_met=figure >= least)]


def _most(what: str, figures: Sequence[float], most: float, over: Callable[[Sequence[float]], float]) -> list[Target]:
    if not figures:
        return []
    figure = over(figures)
    return [Target(what=what, figure=figure, wanted=f"<= {most:g}", is_met=figure <= most)]
