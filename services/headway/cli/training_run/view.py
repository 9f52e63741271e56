"""Shows training runs: what is about to run, and how far one is."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.table import Table

from headway.cli.training_run.preparing import PreparedRun
from headway.cli.training_run.runs import RunState
from headway.core.execution.execution import RUNS, ActionKind, Execution
from headway.core.execution.simulator import ExecutionTimes, Simulated, simulate
from headway.core.plan.training import TrainingPlan
from headway.core.training_run import StepReport
from headway.core.units import format_bytes, format_duration

_COLUMNS = 72
_LETTERS = {
    ActionKind.FORWARD: "F",
    ActionKind.RECOMPUTE: "R",
    ActionKind.BACKWARD: "B",
    ActionKind.INPUT: "I",
    ActionKind.WEIGHT: "W",
    ActionKind.UPDATE: "U",
}


def planned_times(execution: Execution, plan: TrainingPlan) -> ExecutionTimes:
    """What parts take by the plan; what is recomputed is in its backward passes."""
    seconds = {ActionKind.FORWARD: "forward_s", ActionKind.BACKWARD: "backward_s"}
    return ExecutionTimes(
        parts=tuple(
            float(getattr(plan.stages[part.stage], seconds[part.kind])) if part.kind in seconds else 0.0
            for part in execution.parts
        ),
        update_s=max(stage.once_s for stage in plan.stages),
    )


def lists_table(prepared: PreparedRun) -> Table:
    """What each rank does in an iteration, and what it holds."""
    table = Table("rank", "stages", "actions", "runs", "sends", "peak memory", box=box.SIMPLE)
    execution = prepared.run.execution
    for each, peak in zip(execution.ranks, prepared.certificate.peak_bytes, strict=True):
        stages = [str(number) for number, stage in enumerate(execution.stages) if each.rank in stage.ranks]
        kinds = [action.kind for action in each.actions]
        runs = sum(kind in RUNS for kind in kinds)
        sends = kinds.count(ActionKind.SEND)
        table.add_row(str(each.rank), ", ".join(stages), str(len(kinds)), str(runs), str(sends), format_bytes(peak))
    return table


def gantt_lines(prepared: PreparedRun) -> Iterator[str]:
    """A line for each rank: forward and backward passes as F and B, waiting as dots."""
    execution = prepared.run.execution
    simulated = simulate(execution, planned_times(execution, prepared.plan))
    yield f"an iteration takes {format_duration(simulated.iteration_s)} by the plan's times:"
    for each in execution.ranks:
        yield f"  rank {each.rank} {_line(execution, simulated, each.rank)}"


def _line(execution: Execution, simulated: Simulated, rank: int) -> str:
    cells = ["."] * _COLUMNS
    for span in simulated.spans:
        if span.rank == rank:
            letter = _LETTERS[execution.ranks[rank].actions[span.at].kind]
            first, end = (round(at / simulated.iteration_s * _COLUMNS) for at in (span.start_s, span.end_s))
            cells[first:end] = letter * (end - first)
    return "".join(cells)


def step_line(report: StepReport, *, batch: int, num_steps: int) -> str:
    """'step 12 of 100: loss 4.12, gradient 0.8, 123 examples/s, 65 ms (60 ms predicted), saved'"""
    predicted = f" ({format_duration(report.predicted_s)} predicted)" if report.predicted_s else ""
    saved = ", saved" if report.is_saved else ""
    return (
        f"step {report.step} of {num_steps}: loss {report.loss:.4g}, gradient {report.grad_norm:.3g}, "
        f"{batch / report.seconds:,.0f} examples/s, {format_duration(report.seconds)}{predicted}{saved}"
    )


def runs_table(runs: Sequence[RunState]) -> Table:
    table = Table("run", "model", "state", "step", "loss", "restarts", box=box.SIMPLE)
    for run in runs:
        loss = f"{run.steps[-1].loss:.4g}" if run.steps else "-"
        step = f"{run.last_step} of {run.job.steps}"
        table.add_row(run.run_id, run.job.model, run.state, step, loss, str(run.num_restarts))
    return table


def run_document(run: RunState) -> dict[str, Any]:
    """For `--json`."""
    last = run.steps[-1] if run.steps else None
    return {
        "run_id": run.run_id,
        "directory": str(run.directory),
        "model": run.job.model,
        "state": run.state,
        "step": run.last_step,
        "steps": run.job.steps,
        "losses": [step.loss for step in run.steps],
        "seconds": None if last is None else last.seconds,
        "predicted_s": None if last is None else last.predicted_s,
        "restarts": run.num_restarts,
        "error": run.error,
    }
