"""Two stages on each device out of one: what interleaved schedules run."""

from dataclasses import replace
from itertools import pairwise

from headway.core.errors import InvalidArgumentError
from headway.core.schedule import Dependency, Task, TaskPlacement
from headway.core.stage_chain import stage_chain

_CHUNKS = 2


def halved(placement: TaskPlacement) -> TaskPlacement:
    """Halves each stage of a chain, and runs the first half of all stages, then the second half: stage s of twice as
    many is on device s mod p. What goes from the last device to the first takes the longest lag of all.

    Raises:
        InvalidArgumentError: the placement is no chain with one stage on each device.
    """
    stages, count = stage_chain(placement), placement.num_devices
    if count < _CHUNKS or [stage.device for stage in stages] != [*range(count)] or stages[0].backward is None:
        raise InvalidArgumentError("Interleaved schedules need a chain of two stages or more, each on its own devices.")
    lags = {(each.before, each.after): each.lag for each in placement.dependencies}
    longest = max(lags.values())
    order = [*range(count)] * _CHUNKS
    forwards = [_half(placement.tasks[stages[device].forward], f"F{s}") for s, device in enumerate(order)]
    backwards = [_half(placement.tasks[stages[order[s]].backward or 0], f"B{s}") for s in reversed(range(len(order)))]
    dependencies = []
    for s, (device, following) in enumerate(pairwise(order)):
        pair = stages[device].forward, stages[following].forward
        lag = lags.get(pair, longest)
        back = 2 * len(order) - 1 - s
        dependencies += [Dependency(before=s, after=s + 1, lag=lag), Dependency(before=back - 1, after=back, lag=lag)]
    turn = Dependency(before=len(order) - 1, after=len(order))
    return replace(placement, tasks=(*forwards, *backwards), dependencies=(*dependencies, turn))


def _half(task: Task, name: str) -> Task:
    return replace(task, name=name, time=task.time / _CHUNKS, memory=task.memory / _CHUNKS)
