"""What would make a schedule shorter, from its critical path."""

from collections.abc import Sequence
from itertools import pairwise

from headway.core.schedule import Run, Schedule

_MOST = 3


def advice_for(schedule: Schedule, path: Sequence[Run], bound: float) -> tuple[str, ...]:
    """Names the tasks that the makespan rests on, the device that works most, and what is left to gain."""
    if not path:
        return ()
    placement, makespan = schedule.placement, schedule.makespan
    times: dict[int, float] = {}
    for run in path:
        times[run.task] = times.get(run.task, 0.0) + placement.tasks[run.task].time
    longest = sorted(times, key=lambda task: -times[task])[:_MOST]
    shares = ", ".join(f"{placement.tasks[task].name} {times[task] / makespan:.0%}" for task in longest)
    found = [f"The critical path has {len(path)} runs; of the makespan {shares}."]
    busiest = max(range(placement.num_devices), key=lambda device: placement.loads[device])
    mean = sum(placement.loads) / placement.num_devices
    if placement.loads[busiest] > 1.05 * mean:
        found.append(
            f"Device {busiest} works {placement.loads[busiest] / mean:.2f} times as long as the mean: moving work off "
            "it shortens the period more than any order."
        )
    waits = sum(max(0.0, after.start - schedule.end(run)) for run, after in pairwise(path))
    if waits > 1e-9 * makespan:
        found.append(f"Communication takes {waits / makespan:.1%} of the makespan on the critical path.")
    if makespan > bound * (1 + 1e-9):
        found.append(f"Another order may save up to {1 - bound / makespan:.1%}.")
    else:
        found.append("No order is shorter; only shorter tasks or another placement are.")
    return tuple(found)
