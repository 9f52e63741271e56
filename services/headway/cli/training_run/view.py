"""Shows training runs: what is about to run, and how far one is."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.table import Column, Table

from headway.cli.training_run.preparing import PreparedRun
from headway.cli.training_run.runs import RunState
from headway.cli.training_run.trace import span_line
from headway.core.execution.execution import RUNS, ActionKind, Execution, PartSpec
from headway.core.execution.sharded import unshared_operators
from headway.core.execution.simulator import ExecutionTimes, simulate
from headway.core.plan.training import TrainingPlan
from headway.core.training_run import StepReport
from headway.core.units import format_bytes, format_duration

_MOST_NAMED = 5


def planned_times(execution: Execution, plan: TrainingPlan) -> ExecutionTimes:
    """What parts take by the plan; what is recomputed is in its backward passes."""
    fields = {ActionKind.FORWARD: "forward_s", ActionKind.BACKWARD: "backward_s"}

    def seconds(part: PartSpec) -> float:
        stage, at = divmod(part.stage, execution.num_slices)
        planned = plan.stages[stage].slices[at] if execution.slices else plan.stages[stage]
        return float(getattr(planned, fields[part.kind])) if part.kind in fields else 0.0

    return ExecutionTimes(
        parts=tuple(map(seconds, execution.parts)),
        update_s=max(stage.once_s for stage in plan.stages),
    )


def lists_table(prepared: PreparedRun) -> Table:
    """What each rank does in an iteration, and what it holds."""
    table = Table("rank", "stages", "actions", "runs", "sends", "peak memory", box=box.SIMPLE)
    execution = prepared.run.execution
    for each, peak in zip(execution.ranks, prepared.certificate.peak_bytes, strict=True):
        own = (number for number, stage in enumerate(execution.stages) if each.rank in stage.ranks)
        stages = dict.fromkeys(str(execution.planned_stage(number)) for number in own)
        kinds = [action.kind for action in each.actions]
        runs = sum(kind in RUNS for kind in kinds)
        sends = kinds.count(ActionKind.SEND)
        table.add_row(str(each.rank), ", ".join(stages), str(len(kinds)), str(runs), str(sends), format_bytes(peak))
    return table


def unshared_lines(prepared: PreparedRun) -> Iterator[str]:
    """A line for each stage with operators that its plan splits, and that each worker computes as a whole instead."""
    execution = prepared.run.execution
    found: dict[int, list[str]] = {}
    for count, program in prepared.run.programs.items():
        for stage, operator in unshared_operators(
            program, execution.stages, int(count), num_slices=execution.num_slices
        ):
            found.setdefault(stage, []).append(operator)
    for stage, operators in sorted(found.items()):
        named = ", ".join(operators[:_MOST_NAMED]) + (" and others" if len(operators) > _MOST_NAMED else "")
        yield f"stage {stage}: each worker computes {len(operators)} operators as wholes that the plan splits: {named}"


def zero_lines(prepared: PreparedRun) -> Iterator[str]:
    """A line for each stage whose runs gather parameters or scatter gradients."""
    execution = prepared.run.execution
    found: dict[int, tuple[set[str], set[str]]] = {}
    for part in execution.parts:
        gathered, scattered = found.setdefault(execution.planned_stage(part.stage), (set(), set()))
        gathered.update(part.gathered)
        scattered.update(part.scattered)
    for number, (gathered, scattered) in sorted(found.items()):
        if gathered or scattered:
            parameters = f", and its passes gather {len(gathered)} parameters, each for as long as it is read"
            also = parameters if gathered else ""
            yield f"stage {number}: each backward pass scatters the gradients of {len(scattered)} parameters{also}"


def gantt_lines(prepared: PreparedRun) -> Iterator[str]:
    """A line for each rank: forward and backward passes as F and B, waiting as dots."""
    execution = prepared.run.execution
    simulated = simulate(execution, planned_times(execution, prepared.plan))
    yield f"an iteration takes {format_duration(simulated.iteration_s)} by the plan's times:"
    for each in execution.ranks:
        line = span_line(execution, simulated.spans, each.rank, whole_s=simulated.iteration_s)
        yield f"  rank {each.rank} {line}"


def step_line(report: StepReport, *, batch: int, num_steps: int) -> str:
    """'step 12 of 100: loss 4.12, gradient 0.8, 123 examples/s, 65 ms (60 ms predicted), bubble 20%, saved'"""
    predicted = f" ({format_duration(report.predicted_s)} predicted)" if report.predicted_s else ""
    tokens = f", {report.tokens_s:,.0f} tokens/s" if report.tokens_s else ""
    mfu = f", MFU {report.mfu:.1%}" if report.mfu else ""
    validated = "" if report.validation_loss is None else f", validated {report.validation_loss:.4g}"
    saved = ", saved" if report.is_saved else ""
    return (
        f"step {report.step} of {num_steps}: loss {report.loss:.4g}, gradient {report.grad_norm:.3g}, "
        f"{batch / report.seconds:,.0f} examples/s{tokens}, {format_duration(report.seconds)}{predicted}{mfu}, "
        f"bubble {report.bubble:.0%}{validated}{saved}"
    )


def runs_table(runs: Sequence[RunState]) -> Table:
    table = Table(Column("run", no_wrap=True), "model", "state", "step", "loss", box=box.SIMPLE)
    for run in runs:
        loss = f"{run.steps[-1].loss:.4g}" if run.steps else "-"
        again = f", begun {1 + run.num_restarts} times" if run.num_restarts else ""
        table.add_row(run.run_id, run.job.model, run.state + again, f"{run.last_step}/{run.job.steps}", loss)
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
