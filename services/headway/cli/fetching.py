"""Fetches a model, and shows how far it is."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from headway.core.fetch_report import FetchReport
from headway.core.model_uri import ModelUri

_INTERRUPTED = 130
_LINE_EVERY = 0.1


def fetch_to(
    uri: ModelUri, directory: Path, *, sha256: str = "", report: Callable[[FetchReport], None] = lambda _: None
) -> FetchReport:
    """Brings a model's files to a directory; errors are those of `fetch_model`."""
    from headway.fetch.model_fetch import fetch_model  # imports clients of several places, which is slow

    def tell(found: FetchReport) -> None:
        report(found)
        show(found)

    with _showing(uri) as show:
        try:
            return fetch_model(uri, directory, sha256=sha256, report=tell)
        except KeyboardInterrupt:
            typer.echo(f"\nWhat is there of {uri} is kept: the same command goes on with it.", err=True)
            raise typer.Exit(_INTERRUPTED) from None


def cached_directory(uri: ModelUri) -> Path:
    """Where models are kept that were fetched without saying where to."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "headway" / "models" / uri.directory_name


@contextmanager
def _showing(uri: ModelUri) -> Iterator[Callable[[FetchReport], None]]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task(str(uri), total=None)
        yield lambda report: progress.update(task, completed=report.num_bytes, total=report.total_bytes or None)


class _Lines:
    """A line for each tenth, where nobody watches a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = 0.0

    def __call__(self, report: FetchReport, /) -> None:
        if not report.total_bytes or (done := report.num_bytes / report.total_bytes) < self._next:
            return
        self._next = done + _LINE_EVERY
        told = f"{report.uri}: {done:4.0%} of {decimal(report.total_bytes)}"
        self._console.print(told, highlight=False, soft_wrap=True)
