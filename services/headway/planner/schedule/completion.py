"""From a repetend to whole schedules of any number of micro-batches: sections III-C and IV-C."""

from collections.abc import Iterator
from dataclasses import dataclass

from headway.core.schedule import Run, Schedule
from headway.planner.schedule.problem import Problem
from headway.planner.schedule.repetend import Effort, Kernel
from headway.planner.schedule.shop import Job, Shop, solve_shop
from headway.planner.schedule.timing import Instance, compacted


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What comes before the first repetition and after the last, for any number of repetitions.

    Attributes:
        warmup: starts; the first repetition's time 0 is at `offset`.
        cooldown: starts after the time 0 of the last repetition, by task and micro-batch, counted as if there were one
            repetition only.
        is_optimal: whether neither can be shorter beside this repetend.
    """

    kernel: Kernel
    warmup: dict[Instance, int]
    offset: int
    cooldown: dict[Instance, int]
    is_optimal: bool


def complete(problem: Problem, kernel: Kernel, *, effort: Effort) -> Completion:
    """Searches the shortest warm-up, then the shortest cool-down, of equations (5) and (6).

    Both fit the ragged edges of the repetitions, device by device, instead of waiting for all of them. Where a search
    finds nothing in time, the repetition itself is what there is, without the micro-batches that are not there.
    """
    warm = _warmup(problem, kernel)
    periodic = {job.instance: _periodic(kernel, job.instance) for job in warm.jobs}
    base = -min(periodic.values(), default=0)
    warmed = solve_shop(warm, {instance: base + start for instance, start in periodic.items()}, effort=effort)
    offset = max(warmed.length, 0)
    cool = _cooldown(problem, kernel, warmed.starts, offset)
    late = {job.instance: max(_periodic(kernel, job.instance), 0) for job in cool.jobs}
    delayed = _delay(cool, late)
    cooled = solve_shop(cool, delayed, effort=effort)
    return Completion(
        kernel=kernel,
        warmup=warmed.starts,
        offset=offset,
        cooldown=cooled.starts,
        is_optimal=warmed.is_optimal and cooled.is_optimal,
    )


def extend(problem: Problem, completion: Completion, num_micro_batches: int) -> Schedule:
    """The schedule of `num_micro_batches`, N_R at least: warm-up, repetitions, cool-down, then all as early as the
    orders allow."""
    kernel, tick = completion.kernel, problem.tick
    last = num_micro_batches - kernel.num_micro_batches
    starts = dict(completion.warmup)
    for repetition in range(last + 1):
        for i, (index, start) in enumerate(zip(kernel.indices, kernel.starts, strict=True)):
            starts[i, index + repetition] = completion.offset + repetition * kernel.period + start
    for (i, n), start in completion.cooldown.items():
        starts[i, n + last] = completion.offset + last * kernel.period + start
    runs = (Run(start=start * tick, task=i, micro_batch=n) for (i, n), start in starts.items())
    return compacted(
        Schedule(
            placement=problem.placement,
            num_micro_batches=num_micro_batches,
            runs=tuple(sorted(runs)),
            method="tessel",
        )
    )


def truncated(problem: Problem, kernel: Kernel, num_micro_batches: int) -> Schedule:
    """The repetition alone, without the micro-batches that are not there, as early as its orders allow: for any number
    of micro-batches, also fewer than N_R."""
    instances = [(i, n) for i in range(problem.num_tasks) for n in range(num_micro_batches)]
    starts = {instance: _periodic(kernel, instance) for instance in instances}
    base = min(starts.values())
    runs = (Run(start=(start - base) * problem.tick, task=i, micro_batch=n) for (i, n), start in starts.items())
    return compacted(
        Schedule(
            placement=problem.placement,
            num_micro_batches=num_micro_batches,
            runs=tuple(sorted(runs)),
            method="tessel",
        )
    )


def _periodic(kernel: Kernel, instance: Instance) -> int:
    """When the repetition runs it, with repetition 0 at 0."""
    i, n = instance
    return kernel.starts[i] + (n - kernel.indices[i]) * kernel.period


def _windows(problem: Problem, kernel: Kernel) -> tuple[list[int], list[int]]:
    """When each device starts repetition 0, and when it has ended it."""
    firsts = [min((kernel.starts[i] for i in on), default=0) for on in problem.on]
    lasts = [max((kernel.starts[i] + problem.times[i] for i in on), default=0) for on in problem.on]
    return firsts, lasts


def _warmup(problem: Problem, kernel: Kernel) -> Shop:
    """What runs before repetition 0. A tail is how much of the offset it needs after its end."""
    firsts, _ = _windows(problem, kernel)
    jobs = []
    for i, index in enumerate(kernel.indices):
        for n in range(index):
            tails = [-firsts[device] for device in problem.placement.tasks[i].devices]
            tails += [
                lag - _periodic(kernel, (after, n))
                for before, after, lag in problem.edges
                if before == i and n >= kernel.indices[after]
            ]
            jobs.append(Job(task=i, micro_batch=n, tail=max(tails)))
    return Shop(problem=problem, jobs=tuple(jobs), held=(0,) * len(problem.on))


def _cooldown(problem: Problem, kernel: Kernel, warmup: dict[Instance, int], offset: int) -> Shop:
    """What runs after the last repetition, from its time 0 on."""
    _, lasts = _windows(problem, kernel)
    count = kernel.num_micro_batches
    jobs = []
    for i, index in enumerate(kernel.indices):
        for n in range(index + 1, count):
            heads = [lasts[device] for device in problem.placement.tasks[i].devices]
            heads += [
                ready + lag
                for before, after, lag in problem.edges
                if after == i
                for ready in _ready(problem, kernel, (before, n), warmup, offset)
            ]
            jobs.append(Job(task=i, micro_batch=n, head=max(heads)))
    held = tuple(sum((kernel.indices[i] + 1) * problem.memory[i] for i in on) for on in problem.on)
    return Shop(problem=problem, jobs=tuple(jobs), held=held)


def _ready(
    problem: Problem, kernel: Kernel, instance: Instance, warmup: dict[Instance, int], offset: int
) -> Iterator[int]:
    """When the result of what ran in a repetition is there, after the last one's time 0, for any number of them: where
    there are few, it may have run in the warm-up instead."""
    i, n = instance
    if n > kernel.indices[i]:
        return  # in the cool-down itself
    yield _periodic(kernel, instance) + problem.times[i]
    for more in range(kernel.indices[i] - n):
        yield warmup[i, n + more] + problem.times[i] - offset - more * kernel.period


def _delay(shop: Shop, starts: dict[Instance, int]) -> dict[Instance, int]:
    """Moves all by as much as the latest head needs: still in the same order."""
    delay = max((job.head - starts[job.instance] for job in shop.jobs), default=0)
    return {instance: start + max(delay, 0) for instance, start in starts.items()}
