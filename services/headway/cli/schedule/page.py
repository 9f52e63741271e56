"""A schedule as a page: what is under the pointer says what it is, and a click shows its micro-batch alone."""

from collections.abc import Iterator, Mapping
from html import escape

from headway.core.schedule import Schedule, TaskKind

_ROW, _LEFT, _WIDTH, _MEMORY = 28, 70, 1600, 120
_STYLE = """
body {font: 13px sans-serif; margin: 1em}
svg text {font: 11px sans-serif; pointer-events: none}
rect.run {stroke: white; stroke-width: .5; cursor: pointer}
rect.run:hover {stroke: black; stroke-width: 1.5}
rect.dim {opacity: .2}
#told {min-height: 1.4em; font-weight: bold}
"""
_SCRIPT = """
const runs = [...document.querySelectorAll('rect.run')], told = document.getElementById('told');
let shown = null;
runs.forEach(run => {
  run.onmouseenter = () => { told.textContent = run.querySelector('title').textContent };
  run.onclick = () => {
    shown = shown === run.dataset.n ? null : run.dataset.n;
    runs.forEach(each => each.classList.toggle('dim', shown !== null && each.dataset.n !== shown));
  };
});
"""


def schedule_page(schedule: Schedule, *, title: str, colors: Mapping[TaskKind, str]) -> str:
    """One file, which needs nothing from elsewhere."""
    devices = schedule.placement.num_devices
    height = devices * (_ROW + _MEMORY // 3) + 40
    shapes = "\n".join([*_runs(schedule, colors), *_memory(schedule), *_axis(schedule, height)])
    return (
        f"<!doctype html>\n<meta charset='utf-8'>\n<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n"
        f"<p>{escape(title)}. Click a task to see its micro-batch alone.</p>\n<p id='told'></p>\n"
        f"<svg width='{_LEFT + _WIDTH + 20}' height='{height}' xmlns='http://www.w3.org/2000/svg'>\n{shapes}\n</svg>\n"
        f"<script>{_SCRIPT}</script>\n"
    )


def _x(schedule: Schedule, time: float) -> float:
    return _LEFT + _WIDTH * time / schedule.makespan


def _top(device: int) -> int:
    return device * (_ROW + _MEMORY // 3)


def _runs(schedule: Schedule, colors: Mapping[TaskKind, str]) -> Iterator[str]:
    for device, runs in enumerate(schedule.runs_by_device):
        top = _top(device)
        yield f"<text x='4' y='{top + _ROW / 2 + 4}'>device {device}</text>"
        for run, held in zip(runs, schedule.memory_after_starts(device), strict=True):
            task = schedule.placement.tasks[run.task]
            left, width = _x(schedule, run.start), _WIDTH * task.time / schedule.makespan
            told = (
                f"{task.name} ({task.kind}), micro-batch {run.micro_batch}, device {device}: "
                f"{run.start:g} to {run.start + task.time:g}; then holds {held:g}"
            )
            yield (
                f"<rect class='run' data-n='{run.micro_batch}' x='{left:.2f}' y='{top}' width='{width:.2f}' "
                f"height='{_ROW - 4}' fill='{colors[task.kind]}'><title>{escape(told)}</title></rect>"
            )
            if width > 9 * len(str(run.micro_batch)):
                middle = left + width / 2
                yield (
                    f"<text x='{middle:.2f}' y='{top + _ROW / 2 + 2}' fill='white' text-anchor='middle'>"
                    f"{run.micro_batch}</text>"
                )


def _memory(schedule: Schedule) -> Iterator[str]:
    """Under each device what it holds, as a curve."""
    most = max([*schedule.peak_memory, *(schedule.placement.capacities or ())]) or 1.0
    height = _MEMORY // 3 - 6
    for device, runs in enumerate(schedule.runs_by_device):
        base = _top(device) + _ROW + height
        points, before = [f"{_LEFT},{base}"], 0.0
        for run, held in zip(runs, schedule.memory_after_starts(device), strict=True):
            x = _x(schedule, run.start)
            points += [f"{x:.2f},{base - height * before / most:.2f}", f"{x:.2f},{base - height * held / most:.2f}"]
            before = held
        points += [f"{_LEFT + _WIDTH},{base - height * before / most:.2f}", f"{_LEFT + _WIDTH},{base}"]
        yield f"<polygon points='{' '.join(points)}' fill='#bbbbbb'><title>memory of device {device}</title></polygon>"
        yield f"<text x='4' y='{base}'>{schedule.peak_memory[device]:g} at most</text>"


def _axis(schedule: Schedule, height: int) -> Iterator[str]:
    for tick in range(11):
        time = schedule.makespan * tick / 10
        yield f"<text x='{_x(schedule, time):.2f}' y='{height - 8}' text-anchor='middle'>{time:.4g}</text>"
