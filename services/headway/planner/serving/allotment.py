"""Allots workers to models that are to be served on different terms: in a layout, by roles, on some pools. Pure.

Models of equal terms share their workers as the planner likes. Terms that differ have workers of their own, which are
found by trying: what has the fewest workers to choose from comes first. What is left over goes to where there are the
fewest workers for each model.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headway.core.cluster import PlanWorker
from headway.core.errors import FailedPreconditionError
from headway.core.parallel_config import ParallelConfig
from headway.core.plan.serving import Alternative, EngineLimits, ModelDeployment, ServingPlan, Verdict
from headway.planner.serving.claims import Bin, bin_of, choose_workers, claims_of, in_bin, joined
from headway.planner.serving.grouping import in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How models are to be served.

    Attributes:
        parallel: of each group; None leaves it to the planner.
        pools: whose workers may serve them; empty for all.
        roles: the number of workers that compute prompts, and of those that go on with them; None where each does both.
        model: that has its workers to itself; empty for those that share them.
    """

    parallel: ParallelConfig | None = None
    pools: frozenset[str] = frozenset()
    roles: tuple[int, int] | None = None
    model: str = ""

    @classmethod
    def of(cls, model: ModelDeployment) -> "Terms":
        roles = None if not model.has_roles else (model.prefill_workers or 0, model.decode_workers or 0)
        return cls(
            parallel=model.parallel,
            pools=frozenset(model.pools),
            roles=roles,
            model="" if roles is None else model.name,
        )

    def limits(self, limits: EngineLimits) -> EngineLimits:
        """The limits of the stack, with what these terms say."""
        layout = self.parallel
        if self.roles is not None:
            alone = replace(limits, tp=None, pp=None, cp=None, cp_ffn=None, stage_layers=())
            return replace(alone, prefill_workers=self.roles[0], decode_workers=self.roles[1])
        if layout is None:
            return limits
        axes = replace(limits, tp=layout.tp, pp=layout.pp, cp=layout.cp, cp_ffn=layout.cp_ffn)
        return replace(axes, stage_layers=layout.stage_layers, prefill_workers=None, decode_workers=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allotment:
    """Models of equal terms, with workers that are theirs.

    Attributes:
        current: what a plan in use has of these models.
    """

    terms: Terms
    models: tuple[ModelDeployment, ...]
    workers: tuple[PlanWorker, ...]
    limits: EngineLimits
    current: ServingPlan | None

    @property
    def group_size(self) -> int:
        return self.limits.parallel.num_ranks

    @property
    def least(self) -> int:
        """Workers without which it cannot be: models may share a group, unless they say how many they are to have."""
        if self.limits.is_disaggregated:
            return (self.limits.prefill_workers or 0) + (self.limits.decode_workers or 0)
        says_so = any(model.min_replicas for model in self.models)
        return self.group_size * (sum(model.min_replicas or 1 for model in self.models) if says_so else 1)

    @property
    def most(self) -> int | None:
        """Workers beyond which it gains nothing; None for any number."""
        if self.limits.is_disaggregated:
            return self.least
        bounds = [model.max_replicas for model in self.models]
        known = [bound for bound in bounds if bound is not None]
        return self.group_size * sum(known) if len(known) == len(bounds) and self.terms.parallel is not None else None

    def may_use(self, pool: str) -> bool:
        return not self.terms.pools or pool in self.terms.pools


def allot(
    models: Sequence[ModelDeployment],
    workers: Sequence[PlanWorker],
    *,
    limits: EngineLimits,
    current: ServingPlan | None,
    needs: Mapping[Terms, int] | None = None,
) -> list[Allotment]:
    """Allots all workers; one allotment where all models have equal terms.

    Args:
        needs: workers that models need, where they are known to need more than it seems.

    Raises:
        FailedPreconditionError: there is no worker of the pools, or there are too few for all.
    """
    by_terms: defaultdict[Terms, list[ModelDeployment]] = defaultdict(list)
    for model in models:
        by_terms[Terms.of(model)].append(model)
    empty = [
        Allotment(terms=terms, models=tuple(own), workers=(), limits=terms.limits(limits), current=None)
        for terms, own in (by_terms or {Terms(): []}).items()
    ]
    for each in empty:
        _check_pools(each, workers)
    if len(empty) == 1:
        return [_with(each, [worker for worker in workers if each.may_use(worker.pool)], current) for each in empty]
    workers = in_order(workers)
    bins = Counter(map(bin_of, workers))
    least = {each.terms: max(each.least, (needs or {}).get(each.terms, 0)) for each in empty}
    seats = _seats(empty, bins, least)
    if seats is None:
        raise _too_few(empty, workers, least)
    _give_spares(empty, bins, seats)
    return _take(empty, workers, seats, current)


def _check_pools(allotment: Allotment, workers: Sequence[PlanWorker]) -> None:
    if workers and not any(allotment.may_use(worker.pool) for worker in workers):
        names = ", ".join(f"'{model.name}'" for model in allotment.models)
        there = ", ".join(sorted({worker.pool for worker in workers} - {""})) or "none: these workers have no pool"
        raise FailedPreconditionError(
            f"No worker is of the pools that may serve {names}: {', '.join(sorted(allotment.terms.pools))}.",
            hint=f"The pools are {there}.",
            field="models.pools",
        )


_Seats = dict[Terms, Counter[Bin]]


def _seats(allotments: Sequence[Allotment], bins: Mapping[Bin, int], least: Mapping[Terms, int]) -> _Seats | None:
    """Finds bins for the least of each, group by group; None where there are none."""
    contested = _contested(allotments, bins)

    def choices(allotment: Allotment) -> list[Bin]:
        """Those first that fewest others may use, and of these the largest."""
        usable = [each for each in bins if allotment.may_use(each[0])]
        return sorted(usable, key=lambda each: (contested[each], -bins[each], each))

    groups = [
        (each, min(each.group_size, left))
        for each in sorted(allotments, key=lambda each: (len(choices(each)), -each.group_size))
        for left in range(least[each.terms], 0, -each.group_size)
    ]
    order = {each.terms: choices(each) for each in allotments}
    vain: set[tuple[int, tuple[int, ...]]] = set()
    free = dict(bins)
    seats: _Seats = {each.terms: Counter() for each in allotments}

    def seat(position: int) -> bool:
        if position == len(groups):
            return True
        state = position, tuple(free.values())
        if state in vain:
            return False
        allotment, size = groups[position]
        for each in order[allotment.terms]:
            if free[each] >= size:
                free[each] -= size
                if seat(position + 1):
                    seats[allotment.terms][each] += size
                    return True
                free[each] += size
        vain.add(state)
        return False

    return seats if seat(0) else None


def _contested(allotments: Sequence[Allotment], bins: Mapping[Bin, int]) -> dict[Bin, int]:
    """How many allotments may use each bin."""
    return {each: sum(other.may_use(each[0]) for other in allotments) for each in bins}


def _give_spares(allotments: Sequence[Allotment], bins: Mapping[Bin, int], seats: _Seats) -> None:
    """Gives what is left of each bin, a group at a time, to those that have the fewest workers for each model. Bins
    that the fewest may use come first: what others may use as well then evens out what came of that.
    """
    contested = _contested(allotments, bins)
    for each, total in sorted(bins.items(), key=lambda item: contested[item[0]]):
        left = total - sum(of_terms[each] for of_terms in seats.values())
        while left:
            takers = [
                other
                for other in allotments
                if other.may_use(each[0])
                and other.group_size <= left
                and (other.most is None or seats[other.terms].total() + other.group_size <= other.most)
            ]
            if not takers:
                break
            taker = min(takers, key=lambda other: seats[other.terms].total() / len(other.models))
            seats[taker.terms][each] += taker.group_size
            left -= taker.group_size


def _take(
    allotments: Sequence[Allotment], workers: Sequence[PlanWorker], seats: _Seats, current: ServingPlan | None
) -> list[Allotment]:
    """Takes workers for the seats: those that serve the models already, then those that others give up, then what they
    miss least; large groups choose first."""
    free = {worker.worker_id: worker for worker in workers}
    taken: dict[Terms, list[PlanWorker]] = {}
    held = {each.terms: _held(each, current) for each in allotments}
    claims = {
        each.terms: claims_of(held[each.terms], free, seats=seats[each.terms], group_size=each.group_size)
        for each in allotments
    }
    for allotment in sorted(allotments, key=lambda each: -each.group_size):
        others = joined(of_terms for terms, of_terms in claims.items() if terms != allotment.terms)
        for each, size in seats[allotment.terms].items():
            there = in_bin(free, each)
            own = [ids for ids in held[allotment.terms] if there.keys() >= set(ids)]
            for worker_id in choose_workers(there, size, group_size=allotment.group_size, own=own, claims=others):
                taken.setdefault(allotment.terms, []).append(free.pop(worker_id))
    position = {worker.worker_id: index for index, worker in enumerate(workers)}
    return [
        _with(each, sorted(taken.get(each.terms, ()), key=lambda worker: position[worker.worker_id]), current)
        for each in allotments
    ]


def _held(allotment: Allotment, current: ServingPlan | None) -> dict[tuple[str, ...], int]:
    """Groups that serve its models by the plan in use, each with its place among its model's groups, from 1; the first
    ones first, so that none of the models goes without while another one has several."""
    names = {model.name for model in allotment.models}
    count: Counter[str] = Counter()
    groups: dict[tuple[str, ...], int] = {}
    for each in current.assignments if current is not None else ():
        if each.model in names:
            count[each.model] += 1
            groups.setdefault(each.worker_ids, count[each.model])
    return dict(sorted(groups.items(), key=lambda item: item[1]))


def _with(allotment: Allotment, workers: Sequence[PlanWorker], current: ServingPlan | None) -> Allotment:
    return replace(allotment, workers=tuple(workers), current=_current_of(allotment, workers, current))


def _current_of(allotment: Allotment, workers: Sequence[PlanWorker], current: ServingPlan | None) -> ServingPlan | None:
    """What a plan has of these models on these workers, in the layout that it chose for them."""
    if current is None:
        return None
    names, ids = {model.name for model in allotment.models}, {worker.worker_id for worker in workers}
    models = tuple(model for model in current.models if model.name in names)
    if models == current.models and ids.issuperset(worker.worker_id for worker in current.workers):
        return current
    own = tuple(each for each in current.assignments if each.model in names and ids.issuperset(each.worker_ids))
    was_open = all(Terms.of(model).parallel is None and not model.has_roles for model in models)
    layouts = {each.parallel for each in own} if was_open and allotment.terms.parallel is None else set()
    return replace(
        current,
        models=models,
        workers=tuple(worker for worker in current.workers if worker.worker_id in ids),
        assignments=own,
        alternatives=tuple(Alternative(parallel=layout, verdict=Verdict.KEPT) for layout in layouts)
        if len(layouts) == 1
        else (),
    )


def _too_few(
    allotments: Sequence[Allotment], workers: Sequence[PlanWorker], least: Mapping[Terms, int]
) -> FailedPreconditionError:
    """The error where not all can have what they need, with what each does and what there is."""
    listed = "; ".join(_told(each, least[each.terms]) for each in allotments)
    pools = Counter(worker.pool for worker in workers)
    there = ", ".join(f"{num} of {pool}" if pool else str(num) for pool, num in sorted(pools.items()))
    return FailedPreconditionError(
        f"Models that are served in different ways need workers of their own, at least: {listed}. There are {there}.",
        hint="Start more workers, or let models share them: with equal parallelism and pools, and without roles.",
        field="workers",
    )


def _told(allotment: Allotment, least: int) -> str:
    names = ", ".join(f"'{model.name}'" for model in allotment.models)
    pools = f" of {' or '.join(sorted(allotment.terms.pools))}" if allotment.terms.pools else ""
    return f"{names} {least}{pools}"
