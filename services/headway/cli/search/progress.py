"""Progress of a search: one line that changes on a terminal, a line for each step elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console

from headway.core.search_progress import SearchProgress
from headway.core.units import format_duration


class Show(Protocol):
    """Callback that is told of every step."""

    def __call__(self, progress: SearchProgress, /) -> None: ...


@contextmanager
def showing(console: Console) -> Iterator[Show]:
    if console.is_terminal:
        with console.status("starting") as status:
            yield lambda progress: status.update(progress_text(progress))
    else:
        yield lambda progress: console.print(progress_text(progress), highlight=False, soft_wrap=True)


def progress_text(progress: SearchProgress) -> str:
    """'searching, 3 of 8: best so far 97 % after 2 s'"""
    steps = f", {progress.done} of {progress.total}" if progress.total else ""
    best = f": best so far {progress.best_figure}" if progress.best_figure else ""
    after = f" after {format_duration(progress.elapsed_s)}" if progress.best_figure and progress.elapsed_s else ""
    return f"{progress.phase}{steps}{best}{after}"
