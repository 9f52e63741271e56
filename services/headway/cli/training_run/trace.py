"""One measured iteration of a run beside what was predicted of it: as a Chrome trace, lines of text and a picture."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.figure_file import write_figure
from headway.core.codec import from_document
from headway.core.errors import FailedPreconditionError
from headway.core.execution.execution import ActionKind, Execution
from headway.core.execution.simulator import Span, simulate
from headway.core.training_run import RUN_FILE, RankTrace, TrainingRun, trace_file
from headway.core.units import format_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LETTERS = {
    ActionKind.FORWARD: "F",
    ActionKind.RECOMPUTE: "R",
    ActionKind.BACKWARD: "B",
    ActionKind.INPUT: "I",
    ActionKind.WEIGHT: "W",
    ActionKind.UPDATE: "U",
}
COLORS = {
    ActionKind.FORWARD: "#4c72b0",
    ActionKind.RECOMPUTE: "#8172b3",
    ActionKind.BACKWARD: "#dd8452",
    ActionKind.INPUT: "#64b5cd",
    ActionKind.WEIGHT: "#55a868",
    ActionKind.UPDATE: "#937860",
}
_COLUMNS = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """Runs and updates of all ranks, from 0 s on."""

    name: str
    seconds: float
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """Both pictures of one step; `predicted` has no update, which is not simulated."""

    step: int
    execution: Execution
    predicted: Iteration
    measured: Iteration


def read_trace(directory: Path) -> StepTrace:
    """The last iteration that all ranks have kept; FailedPreconditionError where there is none yet."""
    run = from_document(TrainingRun, json.loads((directory / RUN_FILE).read_text()))
    paths = [directory / trace_file(rank) for rank in range(len(run.execution.ranks))]
    traces = [from_document(RankTrace, json.loads(path.read_text())) for path in paths if path.is_file()]
    if len(traces) < len(paths) or len({trace.step for trace in traces}) > 1:
        raise FailedPreconditionError(
            f"{directory.name} has no trace of a whole iteration.",
            hint="The second one is kept, then one in trace_every of the job; try again behind the next one.",
            field="trace_every",
        )
    began_s = min(trace.began_s for trace in traces)
    spans = tuple(
        Span(rank=span.rank, at=span.at, start_s=span.start_s - began_s, end_s=span.end_s - began_s)
        for trace in traces
        for span in trace.spans
    )
    simulated = simulate(run.execution, traces[0].times)
    return StepTrace(
        step=traces[0].step,
        execution=run.execution,
        predicted=Iteration(name="predicted", seconds=simulated.iteration_s, spans=simulated.spans),
        measured=Iteration(name="measured", seconds=max(trace.ended_s for trace in traces) - began_s, spans=spans),
    )


def chrome_trace(trace: StepTrace) -> str:
    """A process for what was predicted and one for what was measured, a thread for each rank."""
    events: list[dict[str, Any]] = []
    for process, iteration in enumerate((trace.predicted, trace.measured)):
        events.append({"ph": "M", "pid": process, "name": "process_name", "args": {"name": iteration.name}})
        for each in trace.execution.ranks:
            name = {"name": f"rank {each.rank}"}
            events.append({"ph": "M", "pid": process, "tid": each.rank, "name": "thread_name", "args": name})
        for span in iteration.spans:
            action = trace.execution.ranks[span.rank].actions[span.at]
            events.append(
                {
                    "ph": "X",
                    "pid": process,
                    "tid": span.rank,
                    "ts": span.start_s * 1e6,
                    "dur": (span.end_s - span.start_s) * 1e6,
                    "name": trace.execution.action_text(action),
                    "cat": action.kind.value,
                }
            )
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"step": trace.step}})


def trace_lines(trace: StepTrace) -> list[str]:
    """Both as text, on one scale."""
    longest_s = max(trace.predicted.seconds, trace.measured.seconds)
    found = []
    for iteration in (trace.predicted, trace.measured):
        found.append(f"step {trace.step}, {iteration.name}: {format_duration(iteration.seconds)}")
        for each in trace.execution.ranks:
            line = span_line(trace.execution, iteration.spans, each.rank, whole_s=longest_s)
            found.append(f"  rank {each.rank} {line}")
    return found


def span_line(execution: Execution, spans: Sequence[Span], rank: int, *, whole_s: float) -> str:
    """A rank's runs as letters, and waiting as dots."""
    cells = ["."] * _COLUMNS
    for span in spans:
        if span.rank == rank:
            letter = LETTERS[execution.ranks[rank].actions[span.at].kind]
            first, end = (round(at / whole_s * _COLUMNS) for at in (span.start_s, span.end_s))
            cells[first:end] = letter * (end - first)
    return "".join(cells)


def draw_trace(trace: StepTrace, path: Path) -> None:
    """Writes .svg, .png or .pdf: what was predicted above what was measured."""
    from matplotlib.figure import Figure

    rows = len(trace.execution.ranks)
    figure = Figure(figsize=(12, 2.0 + 0.8 * rows), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for axes, iteration in ((above, trace.predicted), (below, trace.measured)):
        _draw(axes, trace.execution, iteration)
    below.set_xlabel("ms")
    title = (
        f"step {trace.step}: {format_duration(trace.predicted.seconds)} predicted, "
        f"{format_duration(trace.measured.seconds)} measured"
    )
    figure.suptitle(title, fontsize=10)
    write_figure(figure, path, title=title)


def _draw(axes: "Axes", execution: Execution, iteration: Iteration) -> None:
    used: set[ActionKind] = set()
    for span in iteration.spans:
        kind = execution.ranks[span.rank].actions[span.at].kind
        label = kind.value if kind not in used else None
        used.add(kind)
        left, width = span.start_s * 1e3, (span.end_s - span.start_s) * 1e3
        axes.barh(span.rank, width, left=left, height=0.9, color=COLORS[kind], edgecolor="white", label=label)
    axes.invert_yaxis()
    axes.set_yticks(range(len(execution.ranks)))
    axes.set_ylabel(f"{iteration.name}\nrank")
    axes.legend(ncols=len(used), fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 1.0))
