"""A schedule as a picture: a Gantt chart with the memory of each device under it."""

from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.figure_file import write_figure
from headway.cli.schedule.page import schedule_page
from headway.core.schedule import Schedule, TaskKind
from headway.core.schedule_search import ScheduleReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {
    TaskKind.FORWARD: "#4c72b0",
    TaskKind.BACKWARD: "#dd8452",
    TaskKind.INPUT: "#64b5cd",
    TaskKind.WEIGHT: "#55a868",
}
_MOST_NUMBERS = 1500
_MOST_LINES = 8


def draw_schedule(report: ScheduleReport, path: Path) -> None:
    """Writes .svg, .png or .pdf; or .html, which shows a task's name, micro-batch and times under the pointer."""
    title = (
        f"{report.placement.get('name', '')}, {report.method}, {report.num_micro_batches} micro-batches: "
        f"makespan {report.makespan:g}, period {report.period:g}, bubble {report.bubble_rate:.1%}"
    )
    if path.suffix == ".html":
        path.write_text(schedule_page(report.schedule, title=title, colors=COLORS))
        return
    from matplotlib.figure import Figure

    schedule = report.schedule
    rows = schedule.placement.num_devices
    width = min(40.0, max(8.0, len(schedule.runs_by_device[0]) * 0.28))
    figure = Figure(figsize=(width, 2.2 + 0.42 * rows + 2.0), layout="constrained")
    chart, memory = figure.subplots(2, 1, sharex=True, height_ratios=(max(1.5, 0.42 * rows), 1.6))
    _draw_runs(chart, schedule)
    _draw_memory(memory, schedule)
    figure.suptitle(title, fontsize=10)
    write_figure(figure, path, title=title)


def _draw_runs(axes: "Axes", schedule: Schedule) -> None:
    used = set()
    for device, runs in enumerate(schedule.runs_by_device):
        for run in runs:
            task = schedule.placement.tasks[run.task]
            label = task.kind.value if task.kind not in used else None
            used.add(task.kind)
            shade = 1.0 if len(task.devices) == 1 else 0.6
            color = COLORS[task.kind]
            axes.barh(
                device, task.time, left=run.start, height=0.9, color=color, alpha=shade, edgecolor="white", label=label
            )
            if len(schedule.runs) <= _MOST_NUMBERS:
                middle = run.start + task.time / 2
                axes.text(middle, device, str(run.micro_batch), ha="center", va="center", fontsize=7, color="white")
    axes.invert_yaxis()
    axes.set_yticks(range(schedule.placement.num_devices))
    axes.set_ylabel("device")
    axes.legend(ncols=len(used), fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 1.0))


def _draw_memory(axes: "Axes", schedule: Schedule) -> None:
    for device, runs in enumerate(schedule.runs_by_device):
        held = list(schedule.memory_after_starts(device))
        starts = [run.start for run in runs]
        label = f"device {device}" if schedule.placement.num_devices <= _MOST_LINES else None
        axes.step([0.0, *starts, schedule.makespan], [0.0, *held, *held[-1:]], where="post", label=label, linewidth=1)
    for capacity in sorted(set(schedule.placement.capacities or ())):
        axes.axhline(capacity, color="black", linewidth=1, linestyle="--")
    axes.set_xlabel("time")
    axes.set_ylabel("memory")
    if schedule.placement.num_devices <= _MOST_LINES:
        axes.legend(ncols=4, fontsize=7, loc="lower right", bbox_to_anchor=(1.0, 1.0))
