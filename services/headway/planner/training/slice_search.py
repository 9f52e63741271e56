"""TeraPipe's search for a training plan: micro-batches that pass through the pipeline in slices of their tokens
(dissertation chapter 2), with depth, data and operator parallelism as Alpa's passes find best. Pure.

With S slices the pipeline fills S times as fast, so that stages are cut as for S times as many micro-batches; then the
slicing that is best for these stages is found, with what slices really take.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from headway.core.cost.costs import Costs
from headway.core.errors import FailedPreconditionError
from headway.core.plan.training import SliceSeconds, TrainingStage
from headway.core.token_slices import TokenSlices
from headway.core.training_cluster import TrainingCluster
from headway.planner.inter.stage_table import LayeredStep
from headway.planner.intra.quantities import Prices
from headway.planner.terapipe.sliced_pipeline import in_flight, pipeline_s
from headway.planner.terapipe.slicing import slice_batch
from headway.planner.training.alpa import AlpaSearch, Found, StepTables
from headway.planner.training.candidates import Ahead, CandidateExecutor, Candidates, Tried, timed
from headway.planner.training.micro_batches import search_micro_batches
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.slice_pricing import SlicePricing, StageTimes, joint_times
from headway.planner.training.stages import StageLayout

_CUT_FOR = (16, 4)  # slices that stages are cut for, most first
_EQUAL = (2, 4, 8, 16, 32)  # numbers of equal slices that are tried beside the best ones
_WORTH = 0.99  # of the shortest iteration that is known: what slices without any cost would have to take at most


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSlices:
    """A pipeline whose micro-batches are sliced.

    Attributes:
        tokens: of each slice.
    """

    step: LayeredStep
    prices: Prices
    num_micro_batches: int
    stages: tuple[TrainingStage, ...]
    tokens: tuple[int, ...]

    @property
    def iteration_s(self) -> float:
        """By equation 2.5, with what happens once an iteration."""
        slices = [stage.slices for stage in self.stages]
        return pipeline_s(slices, self.num_micro_batches) + max(stage.once_s for stage in self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicesTried:
    """What slices gain for one number of micro-batches.

    Attributes:
        found: the best; None where none fits, or none can be worth it.
        least_s: an iteration that none is below: that of the best stages for slices that cost nothing. Infinite where
            none fits.
    """

    found: FoundSlices | None = None
    least_s: float = np.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """One number of micro-batches.

    Attributes:
        least_s: that of `SlicesTried`.
        price: finds the best slices.
    """

    chain: Found | None = None
    least_s: float = np.inf
    price: Callable[[], FoundSlices | None] = lambda: None


_Both = tuple[Found | None, SlicesTried]


@dataclass
class SliceSearch:
    """The search for one problem on alike nodes. A pipeline of whole micro-batches is one too: where no slices are
    faster, it is Alpa's.

    Attributes:
        costs: of each group of nodes.
        chain, sliced: the best that were found of each.
        least_s: what no slices take less than, of the numbers of micro-batches that were tried; infinite where none
            fits.
        elsewhere_cpu_s: processor time of candidates that other processes tried.

    Raises:
        FailedPreconditionError: the model is no causal language model, or the nodes are not alike.
    """

    problem: TrainingProblem
    costs: Sequence[Costs]
    chain: Found | None = None
    sliced: FoundSlices | None = None
    least_s: float = np.inf
    elsewhere_cpu_s: float = 0.0

    def __post_init__(self) -> None:
        TokenSlices(self.problem.graph)
        if len(self.problem.cluster.groups) > 1:
            raise FailedPreconditionError(
                "Slices of tokens pass through alike nodes, and the cluster has several groups.",
                hint="Plan with `headway plan train --method alpa`.",
            )

    def run(
        self,
        *,
        report: Callable[[Found | FoundSlices], None],
        should_stop: Callable[[], bool],
        executor: CandidateExecutor | None = None,
    ) -> Found | FoundSlices | None:
        """Searches chains over the numbers of micro-batches that Alpa tries, then slices where those that cost nothing
        would be faster than the best chain, then fewer micro-batches as long as slices of them are faster.

        Args:
            executor: tries several numbers at once; None to try one after the other.

        Returns:
            The pipeline with the shortest iteration; None where none fits.
        """
        shared, numbers = Candidates(problem=self.problem, costs=self.costs), self.problem.numbers_of_micro_batches()
        ask: Callable[[int], _Candidate] = _Tries(shared)
        if executor is not None:
            ahead = Ahead(task=_candidate, shared=shared, numbers=numbers, executor=executor, should_stop=should_stop)
            ask = _Elsewhere(ahead)
        tried: set[int] = set()
        waiting: list[_Candidate] = []

        def cut(number: int) -> Found | None:
            tried.add(number)
            candidate = ask(number)
            self.least_s = min(self.least_s, candidate.least_s)
            if _is_faster(candidate.chain, self.chain):
                self.chain = candidate.chain
            waiting[:] = [each for each in (*waiting, candidate) if self._is_worth(each)]
            return candidate.chain

        search_micro_batches(
            numbers, cut, num_devices=self.problem.cluster.num_devices, report=report, should_stop=should_stop
        )
        self._price(waiting, report=report, should_stop=should_stop)
        for number in reversed(numbers):
            best = self.sliced
            if should_stop() or best is None or number > best.num_micro_batches or number in tried:
                continue
            cut(number)
            self._price(waiting, report=report, should_stop=should_stop)
            if self.sliced is best:
                break
        self.elsewhere_cpu_s = 0.0 if executor is None else ahead.cpu_s
        found = [each for each in (self.chain, self.sliced) if each is not None]
        return min(found, key=lambda each: each.iteration_s, default=None)

    def _price(
        self,
        waiting: list[_Candidate],
        *,
        report: Callable[[FoundSlices], None],
        should_stop: Callable[[], bool],
    ) -> None:
        """Finds the slices of what is worth it, the most promising first."""
        for candidate in sorted(waiting, key=lambda each: each.least_s):
            sliced = candidate.price() if self._is_worth(candidate) and not should_stop() else None
            if sliced is not None and _is_faster(sliced, self.sliced):
                self.sliced = sliced
                if _is_faster(sliced, self.chain):
                    report(sliced)
        waiting.clear()

    def _is_worth(self, candidate: _Candidate) -> bool:
        """Whether slices may save something; the tables of what is not are let go."""
        if candidate.least_s == np.inf:
            return False
        return self.chain is None or candidate.least_s <= _WORTH * self.chain.iteration_s


class _Tries:
    """Finds the best chain for one number of micro-batches, and the best of slices when it is asked for."""

    def __init__(self, shared: Candidates) -> None:
        self._slices = TokenSlices(shared.problem.graph)
        self._alpa = AlpaSearch(shared.problem, shared.costs)

    def __call__(self, number: int) -> _Candidate:
        return self._by(self._alpa.next_tables(number))

    def alone(self, number: int) -> _Both:
        """Both at once, without tables of the numbers that are next."""
        candidate = self._by(self._alpa.tables(number))
        return candidate.chain, SlicesTried(found=candidate.price(), least_s=candidate.least_s)

    def _by(self, tables: StepTables) -> _Candidate:
        """By tables that are made."""
        chain = self._alpa.cut(tables)
        below_s = np.inf if chain is None else chain.iteration_s
        cutting = _slice_cut(self._slices, self._alpa, tables)
        return _Candidate(chain=chain, least_s=cutting.least_s, price=lambda: cutting.best(below_s=below_s))


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """The same of what other processes try."""

    ahead: Ahead[_Both]

    def __call__(self, number: int) -> _Candidate:
        chain, slices = self.ahead(number) or (None, SlicesTried())
        return _Candidate(chain=chain, least_s=slices.least_s, price=lambda: slices.found)


def _candidate(shared: Candidates, number: int) -> Tried[_Both]:
    """What is tried in a process of its own."""
    return timed(partial(_Tries(shared).alone, number))


def _is_faster(found: Found | FoundSlices | None, known: Found | FoundSlices | None) -> bool:
    return found is not None and (known is None or found.iteration_s < known.iteration_s)


def cut_slices(
    slices: TokenSlices,
    alpa: AlpaSearch,
    tables: StepTables,
    *,
    cluster: TrainingCluster | None = None,
    num_micro_batches: int | None = None,
) -> FoundSlices | None:
    """The best sliced pipeline for one number of micro-batches; None where none fits.

    Args:
        alpa: the search that the tables are of.
        cluster: the search's with other memory; None for as it is.
        num_micro_batches: another number than that of the tables.
    """
    return _slice_cut(slices, alpa, tables, cluster=cluster, num_micro_batches=num_micro_batches).best(below_s=np.inf)


def _slice_cut(
    slices: TokenSlices,
    alpa: AlpaSearch,
    tables: StepTables,
    *,
    cluster: TrainingCluster | None = None,
    num_micro_batches: int | None = None,
) -> "_SliceCut":
    return _SliceCut(
        alpa=alpa,
        slices=slices,
        cluster=cluster or alpa.cluster,
        tables=tables,
        num_micro_batches=num_micro_batches or tables.num_micro_batches,
        pricing=SlicePricing(slices=slices, maker=tables.maker),
    )


@dataclass(frozen=True, kw_only=True)
class _SliceCut:
    """The sliced pipeline for one number of micro-batches."""

    alpa: AlpaSearch
    slices: TokenSlices
    cluster: TrainingCluster
    tables: StepTables
    num_micro_batches: int
    pricing: SlicePricing

    @property
    def least_s(self) -> float:
        """What no slices take less than: the most of them, as if they cost nothing. Infinite where nothing fits."""
        return np.inf if self._most is None else self._most.cut.iteration_s

    @cached_property
    def _most(self) -> Found | None:
        return self._cut(_CUT_FOR[0])

    def _cut(self, num_slices: int) -> Found | None:
        """Stages as they are best if slices cost nothing."""
        return self.alpa.cut(
            self.tables, cluster=self.cluster, num_micro_batches=self.num_micro_batches, num_slices=num_slices
        )

    def best(self, *, below_s: float) -> FoundSlices | None:
        """The fastest; None where none fits, or where even slices that cost nothing are not worth it.

        Args:
            below_s: an iteration that is known.
        """
        best: FoundSlices | None = None
        known: set[tuple[StageLayout, ...]] = set()
        for number in _CUT_FOR:
            cut = self._most if number == _CUT_FOR[0] else self._cut(number)
            if cut is not None and cut.cut.iteration_s > _WORTH * below_s:
                break
            if cut is None or len(cut.stages) == 1 or cut.layouts in known:
                continue
            known.add(cut.layouts)
            times = [self.pricing.times(layout) for layout in cut.layouts]
            for tokens in self._schemes(times):
                found = self._found(cut.layouts, times, tokens)
                if found is not None and (best is None or found.iteration_s < best.iteration_s):
                    best = found
        return best

    def _schemes(self, times: Sequence[StageTimes]) -> Collection[tuple[int, ...]]:
        """The best slices, and equal ones, of which less is kept."""
        found = slice_batch(joint_times(times), self.num_micro_batches)
        if found is None:
            return ()
        best, seq_len = found.scheme[0].tokens, self.slices.seq_len
        equal = [(seq_len // number,) * number for number in _EQUAL if seq_len % (number * times[0].step) == 0]
        return dict.fromkeys(each for each in (best, *equal) if len(each) > 1)

    def _found(
        self, layouts: Sequence[StageLayout], times: Sequence[StageTimes], tokens: tuple[int, ...]
    ) -> FoundSlices | None:
        """None where it does not fit, or slices cannot be split as stages are."""
        number = self.num_micro_batches
        stages = []
        for place, (layout, of_slices) in enumerate(zip(layouts, times, strict=True)):
            held = in_flight(len(layouts) - 1 - place, tokens, num_micro_batches=number)
            stage = self.tables.maker.stage(replace(layout, in_flight=held))
            seconds = of_slices.of(tokens)
            is_priced = all(each.latency_s < float("inf") for each in seconds)
            if not is_priced or stage.memory.total_bytes > self.cluster.groups[0].memory_bytes:
                return None
            stages.append(_with_slices(stage, seconds))
        return FoundSlices(
            step=self.tables.step,
            prices=self.tables.prices,
            num_micro_batches=number,
            stages=tuple(stages),
            tokens=tokens,
        )


def _with_slices(stage: TrainingStage, seconds: Sequence[SliceSeconds]) -> TrainingStage:
    return replace(
        stage,
        slices=tuple(seconds),
        forward_s=sum(each.forward_s for each in seconds),
        backward_s=sum(each.backward_s for each in seconds),
        handover_s=sum(each.handover_s for each in seconds),
    )
