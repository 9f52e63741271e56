"""Shows a schedule in a terminal."""

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.text import Text

from headway.cli.wide_table import WideTable
from headway.core.schedule import Schedule, TaskKind
from headway.core.schedule_search import ComparedSchedule, ScheduleReport

_MARGIN = 4
_STYLES = {
    TaskKind.FORWARD: "white on blue",
    TaskKind.BACKWARD: "black on yellow",
    TaskKind.INPUT: "black on cyan",
    TaskKind.WEIGHT: "black on green",
}


def schedule_view(report: ScheduleReport) -> RenderableType:
    """Figures, the schedule as a picture where it is narrow enough, and published schedules beside it."""
    parts: list[RenderableType] = [
        Text.assemble((f"{report.method} ", "bold"), _figures(report)),
        Text(_memory(report)),
        *(Text(f"! {each}", style="red") for each in report.violations),
        _Picture(report.schedule),
    ]
    if report.compared:
        parts.append(_compared(report))
    return Group(*parts, *(Text(f"- {each}") for each in report.advice))


def _figures(report: ScheduleReport) -> str:
    repetend = f", repetend of {report.repetend_micro_batches} micro-batches" if report.repetend_micro_batches else ""
    proven = " (no shorter one is possible)" if report.is_optimal else ""
    shortest = "which is the shortest" if report.is_makespan_optimal else f"at most {report.gap:.1%} above the shortest"
    return (
        f"for {report.num_micro_batches} micro-batches: period {report.period:g}{proven}, "
        f"lower bound {report.lower_bound:g}, bubble {report.bubble_rate:.1%}{repetend}\n"
        f"makespan {report.makespan:g}, {shortest}; bubble of the whole {report.bubble_of_makespan:.1%}, "
        f"within the longest device's span {report.bubble_of_span:.1%}"
    )


def _memory(report: ScheduleReport) -> str:
    held = ", ".join(f"{each:g}" for each in report.peak_memory)
    capacities = report.schedule.placement.capacities
    if capacities is None:
        return f"memory of each device {held}"
    return f"memory of each device {held} of {', '.join(f'{each:g}' for each in sorted(set(capacities)))}"


@dataclass(frozen=True, slots=True)
class _Picture:
    """A line for each device, a digit for each unit of time: the micro-batch's last. Nothing where it is too wide."""

    schedule: Schedule

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        tasks = self.schedule.placement.tasks
        is_whole = all(float(task.time).is_integer() for task in tasks)
        if is_whole and self.schedule.makespan + _MARGIN <= options.max_width:
            for device, runs in enumerate(self.schedule.runs_by_device):
                line, now = Text(f"{device:>3} "), 0
                for run in runs:
                    task = tasks[run.task]
                    line.append(" " * (round(run.start) - now))
                    line.append(str(run.micro_batch % 10) * round(task.time), style=_STYLES[task.kind])
                    now = round(run.start + task.time)
                yield line


def _compared(report: ScheduleReport) -> WideTable:
    best = ComparedSchedule(
        method=report.method,
        placement=str(report.placement.get("name", "")),
        makespan=report.makespan,
        period=report.period,
        peak_memory=max(report.peak_memory),
    )
    rows = [
        (
            each.method,
            each.placement,
            _number(each.makespan),
            _number(each.period),
            _number(each.peak_memory),
            each.why_not,
        )
        for each in (best, *report.compared)
    ]
    columns: tuple[tuple[str, JustifyMethod], ...] = (
        ("schedule", "left"),
        ("placement", "left"),
        ("makespan", "right"),
        ("period", "right"),
        ("memory", "right"),
        ("why not", "left"),
    )
    return WideTable(columns, rows, 1)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
