"""Searches the placement that keeps most SLOs: algorithms 3 and 4 of the dissertation, then local moves."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from random import Random

from headway.core.device_kind import DeviceKind, check_devices, even_nodes
from headway.core.placement import PlacedModel, Placement
from headway.planner.placement.check import check_placement, check_workload
from headway.planner.placement.search.evaluator import Evaluator
from headway.planner.placement.search.feasible import check_feasible
from headway.planner.placement.search.fill import fill
from headway.planner.placement.search.greedy import select_by_beam, select_unserved
from headway.planner.placement.search.local_search import local_search
from headway.planner.placement.search.options import BetterPlacement, Found, SearchOptions, Selection
from headway.planner.placement.search.parallel import SearchExecutor, search_in_parallel
from headway.planner.placement.search.partition import Partition, Select, mask_of_all, partitions
from headway.planner.placement.search.problem import Groups, make_problem
from headway.planner.placement.search.search_state import SearchState, evaluate
from headway.planner.placement.search.traces import resample, thin
from headway.planner.placement.simulator import Rules, attainment
from headway.planner.placement.workload import Workload

NUM_STARTS = 4
NUM_GIVEN = 2
MOST_GENERATED = 12_000
"""Requests that are searched where models generate: each takes hundreds of steps to simulate."""
FIRST_SHARE = 0.15
"""Of the moves, that each start gets before the best of them gets the rest."""


def search(
    models: Sequence[PlacedModel],
    *,
    num_devices: int,
    memory_bytes: int,
    workload: Workload,
    rules: Rules,
    devices_per_node: int | None = None,
    options: SearchOptions = SearchOptions.DEFAULT,
    report: Callable[[BetterPlacement], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    executor: SearchExecutor | None = None,
) -> Found:
    """Searches a placement on devices of one kind; see `search_kinds`.

    Args:
        memory_bytes: of a device, for models.
        devices_per_node: all on one node if None.
    """
    check_devices(num_devices=num_devices, memory_bytes=memory_bytes, devices_per_node=devices_per_node or num_devices)
    kind = DeviceKind(nodes=even_nodes(num_devices, devices_per_node), memory_bytes=memory_bytes)
    return search_kinds(
        models,
        (kind,),
        workload=workload,
        rules=rules,
        options=options,
        report=report,
        should_stop=should_stop,
        executor=executor,
    )


def search_kinds(
    models: Sequence[PlacedModel],
    kinds: Sequence[DeviceKind],
    *,
    workload: Workload,
    rules: Rules,
    options: SearchOptions = SearchOptions.DEFAULT,
    report: Callable[[BetterPlacement], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    executor: SearchExecutor | None = None,
    known: Sequence[Placement] = (),
) -> Found:
    """Searches a placement on several kinds of devices, each group on those of one kind.

    Of several kinds each is searched alone first, and then from what was found for them, apart and side by side, on all
    of them together. So the result meets no fewer SLOs than the best kind alone.

    Args:
        report: hears of each placement that is better than those before.
        should_stop: asked between simulations; what is best so far is returned then.
        executor: for the local moves; None for the caller's process.
        known: placements to go on from, beside the partitions.

    Raises:
        InvalidArgumentError: as `simulate`, and for a cluster without devices or memory.
        FailedPreconditionError: a model with requests fits no group, or can't keep its SLO on any; names the best.
    """
    began_s = time.perf_counter()
    check_workload(workload, models)
    check_placement(Placement(groups=()), models)
    problem = make_problem(models, _traffic(models, workload, options), rules, kinds)
    check_feasible(problem, partial=options.partial)
    evaluator = Evaluator(problem)
    run = _Run(evaluator, options, report, should_stop or (lambda: False), executor, began_s)
    alone = [
        search_kinds(
            models,
            [kind],
            workload=workload,
            rules=rules,
            options=replace(options, partial=True),
            should_stop=should_stop,
            executor=executor,
        )
        for number, kind in enumerate(kinds)
        if len(kinds) > 1 and problem.everything & mask_of_all([problem.able[s] for s in problem.shapes_on(number)])
    ]
    apart = [problem.groups_of(found.placement) for found in alone]
    together = [tuple(sorted(chain.from_iterable(apart)))] if apart else []
    run.begin_with([*(problem.groups_of(placement) for placement in known), *apart, *together])
    placements = [problem.placement(run.search().groups), *(found.placement for found in alone)]
    attained = [attainment(models, placement, workload, rules) for placement in placements]
    best = max(range(len(placements)), key=lambda number: attained[number])
    return Found(
        placement=placements[best],
        attainment=attained[best],
        evaluations=evaluator.evaluations + sum(found.evaluations for found in alone),
        seconds=time.perf_counter() - began_s,
        complete=not run.stopped and all(found.complete for found in alone),
    )


class _Run:
    """A search in progress. `best` is the best placement so far; `stopped` whether somebody wanted it to end."""

    def __init__(
        self,
        evaluator: Evaluator,
        options: SearchOptions,
        report: Callable[[BetterPlacement], None] | None,
        should_stop: Callable[[], bool],
        executor: SearchExecutor | None,
        began_s: float,
    ) -> None:
        self._evaluator = evaluator
        self._options = options
        self._report = report
        self._should_stop = should_stop
        self._executor = executor
        self._began_s = began_s
        self.best = evaluate(evaluator, ())
        self.stopped = False
        self._given: list[SearchState] = []

    def begin_with(self, known: Sequence[Groups]) -> None:
        """Takes further placements to go on from, beside the partitions."""
        self._given = [evaluate(self._evaluator, groups) for groups in known]
        for state in self._given:
            self._keep(state)

    def search(self) -> SearchState:
        starts, moves = self._starts(), self._options.moves
        if self._executor is not None and moves and starts:
            self._search_in_parallel(starts, self._executor)
            return self.best
        rng = Random(self._options.seed)
        first = int(moves * FIRST_SHARE)
        searched = [self._local_search(start, first, rng) for start in starts]
        if searched:
            self._local_search(min(searched, key=lambda each: each.cost), moves - first * len(starts), rng)
        return self.best

    def _starts(self) -> list[SearchState]:
        """The placements to go on from: the best of the partitions, and of what was given."""
        found: list[Partition] = []
        for each in partitions(self._evaluator, _selection(self._options), self._stop, buckets=self._options.buckets):
            found.append(each)
            if each.cost < self.best.cost:
                self._keep(evaluate(self._evaluator, each.groups))
        found.sort(key=lambda each: each.cost)
        best = [evaluate(self._evaluator, each.groups) for each in found[:NUM_STARTS]]
        return best + sorted(self._given, key=lambda each: each.cost)[:NUM_GIVEN]

    def _local_search(self, start: SearchState, moves: int, rng: Random) -> SearchState:
        return local_search(
            start,
            moves=moves,
            temperature=self._options.temperature,
            rng=rng,
            better=self._keep,
            should_stop=self._stop,
        )

    def _search_in_parallel(self, starts: Sequence[SearchState], executor: SearchExecutor) -> None:
        search_in_parallel(
            self._evaluator,
            [each.groups for each in starts],
            moves=self._options.moves,
            temperature=self._options.temperature,
            executor=executor,
            seed=self._options.seed,
            better=self._keep,
            should_stop=self._stop,
        )

    def _keep(self, state: SearchState) -> None:
        if state.cost >= self.best.cost:
            return
        self.best = state
        if self._report:
            self._report(
                BetterPlacement(
                    placement=self._evaluator.problem.placement(state.groups),
                    attainment=state.attainment,
                    evaluations=self._evaluator.evaluations,
                    seconds=time.perf_counter() - self._began_s,
                )
            )

    def _stop(self) -> bool:
        self.stopped = self.stopped or self._should_stop()
        return self.stopped


def _traffic(models: Sequence[PlacedModel], workload: Workload, options: SearchOptions) -> Workload:
    """The traffic that is searched: windows of the trace, and resamples of it."""
    max_requests = max(options.fewest_requests, options.requests_per_model * len(workload.models))
    if any(model.generates for model in models):
        max_requests = min(max_requests, MOST_GENERATED)
    seen = thin(workload, max_requests)
    resamples = min(options.resamples, max(max_requests // len(seen), 1) - 1)
    traits = {model.name: (model.profiles, model.slo) for model in models}
    distinct = list(dict.fromkeys(traits.values()))
    kinds = [distinct.index(traits[name]) for name in workload.models]
    return resample(seen, resamples, kinds=kinds, seed=options.seed)


def _selection(options: SearchOptions) -> Select:
    if options.selection is Selection.BEAM:
        return partial(select_by_beam, beam_size=options.beam_size)
    return select_unserved if options.selection is Selection.UNSERVED else _balance


def _balance(evaluator: Evaluator, shapes: tuple[int, ...], models: int) -> Groups:
    return fill(evaluator.problem, shapes, models)
