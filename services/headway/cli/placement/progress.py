"""Progress of a search: one line that changes on a terminal, a line for each step elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console

from headway.core.plan.placement import PlacementProgress
from headway.core.units import format_duration


class Show(Protocol):
    """Callback that is told of every step."""

    def __call__(self, progress: PlacementProgress, /) -> None: ...


@contextmanager
def showing(console: Console) -> Iterator[Show]:
    if console.is_terminal:
        with console.status("starting") as status:
            yield lambda progress: status.update(_line(progress))
    else:
        yield lambda progress: console.print(_line(progress), highlight=False, soft_wrap=True)


def _line(progress: PlacementProgress) -> str:
    best = f": best so far {progress.attainment:.2%} with {progress.groups}" if progress.groups else ""
    after = f" after {format_duration(progress.elapsed_s)}" if progress.groups else ""
    return f"{progress.phase}{best}{after}"
