"""Progress of start-up: a bar on a terminal, a line for each step elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from headway.cli.readiness import Step, wait_until_ready
from headway.client.stack import Stack
from headway.core.plan.serving import ServingPlan


class Show(Protocol):
    """Callback that is told of every step, also when it equals the one before."""

    def __call__(self, step: Step, /) -> None: ...


async def show_until_ready(state_dir: Path, console: Console) -> tuple[Stack, ServingPlan]:
    """Waits as `wait_until_ready` does, and shows progress on `console`."""
    with _showing(console) as show:
        return await wait_until_ready(state_dir, show=show)


@contextmanager
def _showing(console: Console) -> Iterator[Show]:
    if console.is_terminal:
        with _bar(console) as show:
            yield show
    else:
        yield _Lines(console)


@contextmanager
def _bar(console: Console) -> Iterator[Show]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=1.0)
        yield lambda step: progress.update(task, completed=step.progress, description=_describe(step))


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = ""

    def __call__(self, step: Step, /) -> None:
        if step.waiting_for != self._last:
            self._last = step.waiting_for
            self._console.print(f"{step.progress:4.0%} {_describe(step)}", highlight=False)


def _describe(step: Step) -> str:
    return f"waiting for {step.waiting_for}"
