"""The options of a search, and what it tells."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from headway.core.placement import Placement


class Selection(StrEnum):
    """The way in which models are chosen for the groups of a partition."""

    BALANCE = "balance"
    """Even load, without a simulation: a start for the local moves."""

    UNSERVED = "unserved"
    """The paper's heuristic: a simulation, the most unserved model into the least utilised group, and again."""

    BEAM = "beam"
    """Algorithm 3: every model in every group is simulated, the best few go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Attributes:
    beam_size: of algorithm 3.
    buckets: also keep models of unlike size apart, as algorithm 4 does.
    moves: local changes tried after the partitions; 0 for the paper's algorithms alone.
    temperature: of the local changes, as a share of the requests: so many more may miss after a change at first, on
        average, where the threshold falls to none. 0 keeps only what is better.
    resamples: further traces the placement must also serve, each with every model's arrivals moved in time.
    requests_per_model: of a trace with more, and more than `fewest_requests`, evenly spread windows are searched; a
        shorter one is resampled no further than up to them.
    partial: leave out models that fit nowhere or can't keep their SLO, instead of refusing.
    """

    selection: Selection = Selection.BALANCE
    beam_size: int = 1
    buckets: bool = True
    moves: int = 4000
    temperature: float = 0.001
    resamples: int = 7
    requests_per_model: int = 1500
    fewest_requests: int = 160_000
    partial: bool = False
    seed: int = 0

    DEFAULT: ClassVar["SearchOptions"]
    QUICK: ClassVar["SearchOptions"]
    PAPER: ClassVar["SearchOptions"]


SearchOptions.DEFAULT = SearchOptions()
SearchOptions.QUICK = SearchOptions(moves=250, temperature=0.0, resamples=0, fewest_requests=40_000)
SearchOptions.PAPER = SearchOptions(selection=Selection.UNSERVED, moves=0, resamples=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BetterPlacement:
    """A placement that is better than those before.

    Attributes:
        attainment: on what is searched: windows of the trace, and resamples of it.
        evaluations: simulations so far.
    """

    placement: Placement
    attainment: float
    evaluations: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Attributes:
    attainment: on the whole trace.
    evaluations: simulations, of parts of the placement mostly.
    complete: False where it was stopped.
    """

    placement: Placement
    attainment: float
    evaluations: int
    seconds: float
    complete: bool
