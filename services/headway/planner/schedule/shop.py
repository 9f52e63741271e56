"""Tasks of several micro-batches on their devices with CP-SAT: the paper's equation (1), with times of arrival and of
delivery. All of a schedule is one such problem, and so are its warm-up and its cool-down."""

from collections.abc import Mapping
from dataclasses import dataclass

from ortools.sat.python import cp_model

from headway.planner.schedule.problem import Problem
from headway.planner.schedule.repetend import Effort
from headway.planner.schedule.timing import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One task of one micro-batch.

    Attributes:
        head: it does not start earlier.
        tail: what comes after its end, in the measure of the objective; may be below 0.
    """

    task: int
    micro_batch: int
    head: int = 0
    tail: int = 0

    @property
    def instance(self) -> Instance:
        return self.task, self.micro_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """Attributes:
    jobs: what is to be run.
    held: what each device holds at the start.
    """

    problem: Problem
    jobs: tuple[Job, ...]
    held: tuple[int, ...]

    def length(self, starts: Mapping[Instance, int]) -> int:
        """The measure: the latest end with its tail."""
        times = self.problem.times
        return max((starts[job.instance] + times[job.task] + job.tail for job in self.jobs), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shopped:
    """Attributes:
    starts: by task and micro-batch.
    bound: no order of the jobs has a smaller measure.
    """

    starts: dict[Instance, int]
    length: int
    bound: int

    @property
    def is_optimal(self) -> bool:
        return self.length <= self.bound


def solve_shop(shop: Shop, hint: Mapping[Instance, int], *, effort: Effort) -> Shopped:
    """Makes the latest end with its tail as early as it can within the effort; never worse than the hint.

    Args:
        hint: a start for every job, which obeys all rules.
    """
    hint = _as_early(shop, hint)
    length = shop.length(hint)
    found = Shopped(starts=dict(hint), length=length, bound=shop_bound(shop))
    if not shop.jobs or found.is_optimal:
        return found
    model, latest = cp_model.CpModel(), length - min(job.tail for job in shop.jobs)
    starts = {
        job.instance: model.new_int_var(job.head, max(latest, job.head), f"s{job.task},{job.micro_batch}")
        for job in shop.jobs
    }
    objective = model.new_int_var(found.bound, length, "length")
    _add_order(model, shop, starts)
    _add_devices(model, shop, starts)
    for job in shop.jobs:
        model.add(starts[job.instance] + shop.problem.times[job.task] + job.tail <= objective)
        model.add_hint(starts[job.instance], hint[job.instance])
    model.minimize(objective)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = effort.workers
    solver.parameters.max_deterministic_time = effort.units
    solver.parameters.max_time_in_seconds = effort.seconds
    status = solver.status_name(solver.solve(model))
    bound = max(found.bound, round(solver.best_objective_bound)) if status != "UNKNOWN" else found.bound
    if status not in ("OPTIMAL", "FEASIBLE"):
        return Shopped(starts=found.starts, length=length, bound=bound)
    values = {instance: solver.value(start) for instance, start in starts.items()}
    return Shopped(starts=values, length=shop.length(values), bound=bound)


def _as_early(shop: Shop, starts: Mapping[Instance, int]) -> dict[Instance, int]:
    """The same order, each start as early as it can be."""
    problem, found = shop.problem, dict[Instance, int]()
    free = [0] * len(problem.on)
    heads = {job.instance: job.head for job in shop.jobs}
    for task, n in sorted(starts, key=lambda instance: starts[instance]):
        ready = [heads[task, n], *(free[device] for device in problem.placement.tasks[task].devices)]
        for before, after, lag in problem.edges:
            if after == task and (before, n) in found:
                ready.append(found[before, n] + problem.times[before] + lag)
        found[task, n] = max(ready)
        for device in problem.placement.tasks[task].devices:
            free[device] = found[task, n] + problem.times[task]
    return found


def shop_bound(shop: Shop) -> int:
    """No device is done before its earliest job's head, all of its jobs and the least of what comes after; and no
    micro-batch before its chain of tasks."""
    problem, bound = shop.problem, 0
    heads, tails = _chains(shop)
    for job in shop.jobs:
        bound = max(bound, heads[job.instance] + problem.times[job.task] + tails[job.instance])
    for device in range(len(problem.on)):
        jobs = [job for job in shop.jobs if device in problem.placement.tasks[job.task].devices]
        if jobs:
            work = sum(problem.times[job.task] for job in jobs)
            first, last = min(heads[job.instance] for job in jobs), min(tails[job.instance] for job in jobs)
            bound = max(bound, first + work + last)
    return bound


def _chains(shop: Shop) -> tuple[dict[Instance, int], dict[Instance, int]]:
    """By job: the earliest start that dependencies allow, and the least that comes after its end."""
    problem = shop.problem
    heads = {job.instance: job.head for job in shop.jobs}
    tails = {job.instance: job.tail for job in shop.jobs}
    for micro_batch in {job.micro_batch for job in shop.jobs}:
        for i in problem.order:
            for before, after, lag in problem.edges:
                if before == i and (i, micro_batch) in heads and (after, micro_batch) in heads:
                    ready = heads[i, micro_batch] + problem.times[i] + lag
                    heads[after, micro_batch] = max(heads[after, micro_batch], ready)
        for i in reversed(problem.order):
            for before, after, lag in problem.edges:
                if before == i and (i, micro_batch) in heads and (after, micro_batch) in heads:
                    left = lag + problem.times[after] + tails[after, micro_batch]
                    tails[i, micro_batch] = max(tails[i, micro_batch], left)
    return heads, tails


def _add_order(model: cp_model.CpModel, shop: Shop, starts: Mapping[Instance, cp_model.IntVar]) -> None:
    """Dependencies, and the micro-batches of a task in order (property 4.1)."""
    times = shop.problem.times
    for (task, micro_batch), start in starts.items():
        if (task, micro_batch + 1) in starts:
            model.add(start + times[task] <= starts[task, micro_batch + 1])
        for before, after, lag in shop.problem.edges:
            if before == task and (after, micro_batch) in starts:
                model.add(start + times[task] + lag <= starts[after, micro_batch])


def _add_devices(model: cp_model.CpModel, shop: Shop, starts: Mapping[Instance, cp_model.IntVar]) -> None:
    """One task at a time on a device, and its memory."""
    problem = shop.problem
    runs = {
        (task, micro_batch): model.new_fixed_size_interval_var(start, problem.times[task], f"r{task},{micro_batch}")
        for (task, micro_batch), start in starts.items()
    }
    for device, on in enumerate(problem.on):
        model.add_no_overlap([run for (task, _), run in runs.items() if task in on])
        changing = [(task, n) for task, n in starts if task in on and problem.memory[task]]
        if problem.capacities is None or not changing:
            continue
        most = sum(abs(problem.memory[task]) for task, _ in changing) + abs(shop.held[device])
        model.add_reservoir_constraint(
            [starts[instance] for instance in changing],
            [problem.memory[task] for task, _ in changing],
            min_level=-most,
            max_level=problem.capacities[device] - shop.held[device],
        )
