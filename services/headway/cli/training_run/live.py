"""What a terminal shows of a run while it trains: one table that is written over with every step."""

from collections import deque
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table

from headway.core.training_job import TrainingJob
from headway.core.training_run import StepReport
from headway.core.units import format_duration

_BARS = "▁▂▃▄▅▆▇█"
_NUM_BARS = 60


class LiveRun:
    """A renderable; `add` gives it the next step."""

    def __init__(self, job: TrainingJob) -> None:
        self._job = job
        self._losses: deque[float] = deque(maxlen=_NUM_BARS)
        self._last: StepReport | None = None
        self._validation_loss: float | None = None

    def add(self, report: StepReport) -> None:
        self._last = report
        self._losses.append(report.loss)
        if report.validation_loss is not None:
            self._validation_loss = report.validation_loss

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._last is None:
            yield "the workers time their parts ..."
            return
        yield ProgressBar(total=self._job.steps, completed=self._last.step, width=_NUM_BARS)
        table = Table.grid(padding=(0, 2))
        for name, value in self._rows(self._last):
            table.add_row(name, value)
        yield table

    def _rows(self, last: StepReport) -> Iterator[tuple[str, str]]:
        yield "step", f"{last.step} of {self._job.steps}" + (", saved" if last.is_saved else "")
        yield "loss", f"{last.loss:.4g}  {sparkline(list(self._losses))}"
        if self._validation_loss is not None:
            yield "validated", f"{self._validation_loss:.4g}"
        yield "gradient", f"{last.grad_norm:.3g}"
        tokens = f", {last.tokens_s:,.0f} tokens/s" if last.tokens_s else ""
        yield "speed", f"{self._job.batch / last.seconds:,.0f} examples/s{tokens}"
        yield "MFU", f"{last.mfu:.1%}" if last.mfu else "not known"
        yield "iteration", f"{format_duration(last.seconds)}, {format_duration(last.predicted_s)} predicted"
        yield "bubble", f"{last.bubble:.1%}, {last.predicted_bubble:.1%} predicted"


def sparkline(values: list[float]) -> str:
    """A bar for each value, between the least and the largest."""
    low, high = min(values), max(values)
    span = high - low or 1.0
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in values)
