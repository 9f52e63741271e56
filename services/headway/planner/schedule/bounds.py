"""What can be said of a placement without a search."""

from headway.core.errors import FailedPreconditionError
from headway.planner.schedule.problem import Problem
from headway.planner.schedule.shop import Job, Shop, shop_bound


def makespan_bound(problem: Problem, num_micro_batches: int) -> int:
    """No schedule of so many micro-batches is shorter, in ticks."""
    return shop_bound(whole_shop(problem, num_micro_batches))


def whole_shop(problem: Problem, num_micro_batches: int) -> Shop:
    """All of a schedule as one problem: TO of the paper."""
    jobs = [Job(task=i, micro_batch=n) for n in range(num_micro_batches) for i in range(problem.num_tasks)]
    return Shop(problem=problem, jobs=tuple(jobs), held=(0,) * len(problem.on))


def least_repetend(problem: Problem, period: int) -> int:
    """No repetend of this period spans fewer micro-batches: a chain of tasks that begins and ends on one device is
    within one period there, but for what the indices differ."""
    least = [1] * problem.num_tasks
    for first in range(problem.num_tasks):
        lengths = _lengths_from(problem, first)
        for last, length in lengths.items():
            shared = set(problem.placement.tasks[first].devices) & set(problem.placement.tasks[last].devices)
            if shared and last != first:
                chain = length + problem.times[last]
                least[first] = max(least[first], -(-chain // period))
    return max(least)


def most_repetend(problem: Problem, period: int) -> int:
    """More micro-batches in a repetend are of no use: along a dependency the index falls by the periods between."""
    depth = [0] * problem.num_tasks
    for i in problem.order:
        for before, after, lag in problem.edges:
            if before == i:
                depth[after] = max(depth[after], depth[i] + 1 + (problem.times[i] + lag) // period)
    return max(depth) + 1


def check_memory(problem: Problem, num_micro_batches: int) -> None:
    """Raises FailedPreconditionError that names the device and the task for which the memory is never enough."""
    placement = problem.placement
    if problem.capacities is None or placement.capacities is None:
        return
    for device, (on, capacity) in enumerate(zip(problem.on, problem.capacities, strict=True)):
        left = sum(problem.memory[i] for i in on)
        if left * num_micro_batches > capacity:
            raise FailedPreconditionError(
                f"Each micro-batch leaves {left * problem.memory_unit:g} on device {device}, which has "
                f"{placement.capacities[device]:g}.",
                hint="Give the tasks that free it a negative memory.",
            )
        for i in on:
            if problem.memory[i] > capacity:
                raise FailedPreconditionError(
                    f"Task {placement.tasks[i].name} needs {placement.tasks[i].memory:g} on device {device}, which has "
                    f"{placement.capacities[device]:g}.",
                    hint="Give devices more memory, or split the task.",
                )


def _lengths_from(problem: Problem, first: int) -> dict[int, int]:
    """Of all tasks that need it: the longest time from its start to theirs."""
    lengths = {first: 0}
    for i in problem.order:
        for before, after, lag in problem.edges:
            if before == i and i in lengths:
                lengths[after] = max(lengths.get(after, 0), lengths[i] + problem.times[i] + lag)
    return lengths
