"""The command `headway logs`."""

import heapq
import time
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from headway.cli.log_file import LogDirectory
from headway.cli.log_line import LogLine
from headway.cli.options import AsJson, StateDir
from headway.client.stack import default_state_dir
from headway.core.errors import NotFoundError

app = typer.Typer(add_completion=False)

_FOLLOW_EVERY_S = 0.2
_LEVEL_STYLES = {"debug": "dim", "warning": "yellow", "error": "red", "critical": "bold red"}
_SERVICE_STYLES = ("cyan", "magenta", "blue", "green", "bright_cyan", "bright_magenta", "bright_blue")


@app.command()
def logs(
    names: Annotated[list[str] | None, typer.Argument(help="Processes, such as gateway or worker-0.")] = None,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines, until Ctrl-C.")] = False,
    num_lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Lines to begin with.")] = 100,
    request: Annotated[str | None, typer.Option(help="Only lines of the request with this id.")] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show the logs of a stack, merged by time."""
    directory = (state_dir or default_state_dir()) / "logs"
    log = LogDirectory(directory, names=tuple(names or ()))
    if missing := [name for name in names or () if name not in log.available]:
        raise NotFoundError(
            f"There is no log of {missing[0]}.", hint=f"There are logs of {', '.join(log.available) or 'nothing yet'}."
        )
    if not log.available:
        raise NotFoundError(f"There are no logs in {directory}.", hint="Start a stack, or name it with --state-dir.")
    console = Console(soft_wrap=True)

    def show(lines: Iterable[LogLine]) -> None:
        for line in sorted(lines, key=lambda line: line.time):
            console.print(line.raw if as_json else _pretty(line), markup=False, highlight=False)

    show(_last(num_lines, _of_request(request, log.new_lines())))
    while follow:
        time.sleep(_FOLLOW_EVERY_S)
        show(_of_request(request, log.new_lines()))


def _of_request(request_id: str | None, lines: Iterable[LogLine]) -> Iterable[LogLine]:
    """Whether a line belongs to the request; ids of its sequences are the request's with a number behind."""
    return lines if request_id is None else (line for line in lines if line.request_id.startswith(request_id))


def _last(count: int, lines: Iterable[LogLine]) -> list[LogLine]:
    """Returns the latest `count` lines by time; of lines with one time, those read later are later."""
    numbered = ((line.time, number, line) for number, line in enumerate(lines))
    latest = sorted(heapq.nlargest(max(count, 1), numbered))  # at least 1: nlargest(0) would not read the lines
    return [line for _, _, line in latest][max(0, len(latest) - count) :]


def _pretty(line: LogLine) -> Text:
    style = _SERVICE_STYLES[sum(line.service.encode()) % len(_SERVICE_STYLES)]
    text = Text()
    text.append(f"{line.time[11:23]:12} ", style="dim")
    text.append(f"{line.service:<10} ", style=style)
    text.append(f"{line.level:<7} ", style=_LEVEL_STYLES.get(line.level, ""))
    if line.request_id:
        text.append(f"[{line.request_id}] ", style="dim")
    text.append(line.message)
    if line.exception:
        text.append("\n" + line.exception, style="red")
    return text
