"""Searches a case, and measures on the trace that the search has not seen."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.alpaserve.case import Case
from headway.core.device_kind import DeviceKind
from headway.core.line import QueuePolicy
from headway.core.placement import Placement
from headway.planner.placement.baselines import selective_replication, uniform_replication
from headway.planner.placement.search import Found, SearchOptions, Selection, search
from headway.planner.placement.search.traces import join
from headway.planner.placement.simulator import Dispatch, Rules, attainment, compile_kernels, simulate

BY_SLACK = replace(Rules.ARTIFACT, dispatch=Dispatch.EARLIEST_FINISH, queue_policy=QueuePolicy.LEAST_SLACK)
"""The artifact's latencies and overheads, where who could wait least is next (`--queue-policy least-slack`)."""
LONG = 1_000_000
MANY_MODELS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The result of one search on a case.

    Attributes:
        searched, heldout: attainment on the trace that was searched on, and on the other.
    """

    searched: float
    heldout: float
    search_s: float
    evaluations: int
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """The simulator's speed in millions of requests per second."""

    attainment_only: float
    full_statistics: float
    batching: float


def search_case(case: Case, options: SearchOptions, *, rules: Rules = Rules.ARTIFACT) -> Search:
    found = run_search(case, options, rules=rules)
    return Search(
        searched=found.attainment,
        heldout=attainment(case.models, found.placement, case.test, rules),
        search_s=found.seconds,
        evaluations=found.evaluations,
        placement=found.placement,
    )


def search_by_slack(case: Case) -> Search:
    compile_kernels(BY_SLACK)
    options = SearchOptions.DEFAULT if len(case.models) <= MANY_MODELS else SearchOptions.QUICK
    return search_case(case, options, rules=BY_SLACK)


def run_search(case: Case, options: SearchOptions, *, rules: Rules = Rules.ARTIFACT) -> Found:
    return search(
        case.models,
        num_devices=case.num_devices,
        memory_bytes=case.memory_bytes,
        devices_per_node=case.devices_per_node,
        workload=case.train,
        rules=rules,
        options=replace(options, partial=True),
    )


def paper_search(case: Case) -> Search:
    """Searches by algorithm 4 with the fast heuristic of algorithm 3, as this repository has them."""
    return search_case(case, replace(SearchOptions.PAPER, selection=Selection.UNSERVED))


def replication(case: Case) -> tuple[float, float]:
    """Held-out attainment of selective and of uniform replication."""
    uniform = uniform_replication(case.models, num_devices=case.num_devices, memory_bytes=case.memory_bytes)
    if not any(group.models for group in uniform.groups):
        return 0.0, 0.0
    selective = selective_replication(
        case.models,
        [DeviceKind(nodes=(case.num_devices,), memory_bytes=case.memory_bytes)],
        workload=case.train,
        rules=Rules.ARTIFACT,
        options=SearchOptions.DEFAULT if len(case.models) <= MANY_MODELS else SearchOptions.QUICK,
    )
    measured = [attainment(case.models, each, case.test, Rules.ARTIFACT) for each in (selective, uniform)]
    return measured[0], measured[1]


def largest_difference(case: Case) -> float:
    """The largest difference of recorded attainments from what our simulator finds for the recorded placements."""
    return max(
        (
            abs(attainment(case.models, each.placement, case.test, Rules.ARTIFACT) - each.attainment)
            for each in case.recorded
            if each.placement is not None
        ),
        default=0.0,
    )


def throughput(case: Case, placement: Placement, *, seconds: float = 1.0) -> Throughput:
    """Times the simulator on the case's test trace again and again, up to `LONG` requests, for at least `seconds` each.

    Statistics include the mean and the 99th percentile.
    """
    case = replace(case, test=join([case.test] * max(1, LONG // len(case.test))))
    batching = Rules(max_batch_size=4)

    def full() -> None:
        outcome = simulate(case.models, placement, case.test, Rules.ARTIFACT)
        outcome.latency_percentile_s(99)
        _ = outcome.mean_latency_s

    return Throughput(
        attainment_only=_rate(case, lambda: attainment(case.models, placement, case.test, Rules.ARTIFACT), seconds),
        full_statistics=_rate(case, full, seconds),
        batching=_rate(case, lambda: simulate(case.models, placement, case.test, batching), seconds),
    )


def _rate(case: Case, run: Callable[[], object], seconds: float) -> float:
    run()
    began_s, count = time.perf_counter(), 0
    while (passed_s := time.perf_counter() - began_s) < seconds:
        run()
        count += len(case.test)
    return count / passed_s / 1e6
