"""V-Half and V-Min (Pipeline Parallelism with Controllable Memory): two stages on each device, there and back, whose
micro-batches pass by in a pattern that repeats every six units of time."""

from collections.abc import Callable
from dataclasses import replace

from headway.core.errors import InvalidArgumentError
from headway.core.schedule import Schedule, TaskPlacement
from headway.core.stage_chain import ChainStage, stage_chain
from headway.planner.schedule.completion import complete, extend, truncated
from headway.planner.schedule.problem import Problem, make_problem
from headway.planner.schedule.repetend import Effort, Kernel
from headway.planner.schedule.timing import Instance, orders_of

_PERIOD = 6
_EFFORT = Effort(units=0.3)

Pattern = Callable[[int, int], tuple[int, int, int, int]]
"""Of a device and the number of devices: when the first micro-batch's forward tasks and gradients of inputs start."""


def v_half_orders(placement: TaskPlacement, num_micro_batches: int) -> list[list[Instance]]:
    """Activations of half of the micro-batches that 1F1B holds, and one: forward passes move by two units down and by
    one up, gradients of inputs the same."""
    return _orders(placement, num_micro_batches, _half, "V-Half")


def v_min_orders(placement: TaskPlacement, num_micro_batches: int) -> list[list[Instance]]:
    """A third of them: all move by one unit from device to device."""
    return _orders(placement, num_micro_batches, _least, "V-Min")


def _half(device: int, count: int) -> tuple[int, int, int, int]:
    turn = 3 * count + (0 if count % 2 else 3)
    return 2 * device, 3 * count - device - 2, turn + 2 * device - 1, turn + 3 * count - device - 2


def _least(device: int, count: int) -> tuple[int, int, int, int]:
    turn = 2 * count + (0 if count % 3 else 2)
    return device, 2 * count - device - 1, turn + device, turn + 2 * count - device - 1


def _orders(placement: TaskPlacement, num_micro_batches: int, pattern: Pattern, name: str) -> list[list[Instance]]:
    """The orders for tasks of equal times, as the shortest warm-up and cool-down make them."""
    stages, there = stage_chain(placement), [*range(placement.num_devices)]
    if [stage.device for stage in stages] != there + there[::-1] or stages[0].weight is None:
        raise InvalidArgumentError(f"{name} needs two stages on each device, there and back, with split gradients.")
    alike = replace(
        placement,
        tasks=tuple(replace(task, time=1) for task in placement.tasks),
        dependencies=tuple(replace(each, lag=0.0) for each in placement.dependencies),
        memory=None,
    )
    problem = make_problem(alike)
    kernel = _kernel(problem, stages, pattern)
    peak = max(truncated(problem, kernel, 2 * kernel.num_micro_batches).peak_memory)
    return orders_of(_made(make_problem(replace(alike, memory=peak)), kernel, num_micro_batches))


def _made(problem: Problem, kernel: Kernel, num_micro_batches: int) -> Schedule:
    """No more memory than the pattern itself takes."""
    if num_micro_batches < kernel.num_micro_batches:
        return truncated(problem, kernel, num_micro_batches)
    return extend(problem, complete(problem, kernel, effort=_EFFORT), num_micro_batches)


def _kernel(problem: Problem, stages: tuple[ChainStage, ...], pattern: Pattern) -> Kernel:
    """Gradients of weights run in the first units after those of inputs that nothing else has."""
    count = problem.placement.num_devices
    starts = [0] * problem.num_tasks
    for device in range(count):
        first, second = stages[device], stages[2 * count - 1 - device]
        at = pattern(device, count)
        free = set(range(_PERIOD)) - {moment % _PERIOD for moment in at}
        assert len(free) == _PERIOD - len(at), "a pattern that runs two tasks at the same time"
        for task, moment in zip((first.forward, second.forward, second.input, first.input), at, strict=True):
            assert task is not None
            starts[task] = moment
        for stage, moment in ((second, at[2]), (first, at[3])):
            after = min(moment + 1 + (slot - moment - 1) % _PERIOD for slot in free)
            free.discard(after % _PERIOD)
            assert stage.weight is not None
            starts[stage.weight] = after
    latest = max(starts) // _PERIOD
    return Kernel(
        period=_PERIOD,
        indices=tuple(latest - start // _PERIOD for start in starts),
        starts=tuple(start % _PERIOD for start in starts),
    )
