"""A schedule as a Chrome trace: chrome://tracing and Perfetto open it."""

import json
from typing import Any

from headway.core.schedule import Schedule


def chrome_trace(schedule: Schedule, *, microseconds: float) -> str:
    """Writes a thread for each device, and a counter of what it holds.

    Args:
        microseconds: of one unit of time.
    """
    events: list[dict[str, Any]] = []
    for device, runs in enumerate(schedule.runs_by_device):
        events.append({"ph": "M", "pid": 0, "tid": device, "name": "thread_name", "args": {"name": f"device {device}"}})
        for run, held in zip(runs, schedule.memory_after_starts(device), strict=True):
            task = schedule.placement.tasks[run.task]
            events.append(
                {
                    "ph": "X",
                    "pid": 0,
                    "tid": device,
                    "ts": run.start * microseconds,
                    "dur": task.time * microseconds,
                    "name": f"{task.name} {run.micro_batch}",
                    "cat": task.kind.value,
                    "args": {"task": task.name, "micro_batch": run.micro_batch},
                }
            )
            events.append(
                {
                    "ph": "C",
                    "pid": 0,
                    "ts": run.start * microseconds,
                    "name": f"memory of device {device}",
                    "args": {"held": held},
                }
            )
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
