"""A training run as its ranks read it: the job, the captured step and the lists of all ranks."""

from dataclasses import dataclass
from pathlib import Path

from headway.core.batch_dims import BatchDims
from headway.core.execution.execution import Execution, StageSpec
from headway.core.execution.planned import shared_axes, with_sharding
from headway.core.execution.simulator import ExecutionTimes, Span
from headway.core.graph import Graph
from headway.core.plan.training import TrainingPlan
from headway.core.program import Program
from headway.core.token_slices import TokenSlices
from headway.core.training_job import TrainingJob

RUN_FILE, INITIAL_FILE, PROGRESS_FILE, PROCESS_FILE = (
    "run.json",
    "initial.safetensors",
    "progress.jsonl",
    "process.json",
)
CHECKPOINTS_DIRECTORY, TENSORBOARD_DIRECTORY = "checkpoints", "tensorboard"
LATEST_FILE = "LATEST"
"""Names the last checkpoint, in their directory."""


def scrape_file(directory: Path) -> Path:
    """Where a run says at which address Prometheus finds it, beside the run's directory."""
    return directory.with_name(f"scrape-{directory.name}.json")


def trace_file(rank: int) -> str:
    """Its name in the run's directory."""
    return f"trace-{rank:05}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """Attributes:
    programs: the captured step, by its number of examples.
    planned_s: of an iteration, as the plan has it.
    num_tokens: of an example; 0 where examples have none.
    flops: of an iteration, in products, convolutions and attention.
    thread_flops: FLOP/s that a thread of this machine can reach, by the catalogue.
    gpu_flops: that one of its GPUs can reach, where ranks compute on these.
    """

    job: TrainingJob
    execution: Execution
    programs: dict[str, Program]
    planned_s: float = 0.0
    num_tokens: int = 0
    flops: float = 0.0
    thread_flops: float = 0.0
    gpu_flops: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What a run tells of one step.

    Attributes:
        step: from 1 on.
        loss: the mean over the batch, before this step's update.
        grad_norm: before clipping.
        seconds: of the whole step, less a checkpoint's.
        predicted_s: by simulating the lists with the times that the parts took in the run's own processes.
        is_saved: whether a checkpoint was written behind it, or was begun where that is done in the background.
        validation_loss: behind it; None where it was not validated.
        tokens_s: tokens a second; 0 where examples have none.
        mfu: the share of the FLOP/s that the catalogue says all workers can reach; 0 where that is not known.
        bubble: the share of the workers' time, but for the update's, in which they ran no part of the model.
        predicted_bubble: the same, as simulated.
    """

    step: int
    loss: float
    grad_norm: float
    seconds: float
    predicted_s: float = 0.0
    is_saved: bool = False
    validation_loss: float | None = None
    tokens_s: float = 0.0
    mfu: float = 0.0
    bubble: float = 0.0
    predicted_bubble: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """One measured iteration of one rank.

    Attributes:
        began_s, ended_s: by the time of day, which machines keep alike.
        spans: of its runs and its update, by that clock.
        times: what the parts took before the first step, from which the iteration was predicted.
    """

    rank: int
    step: int
    began_s: float
    ended_s: float
    spans: tuple[Span, ...]
    times: ExecutionTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingNews:
    """What a run's process tells: a step, or why its ranks begin again at the last checkpoint."""

    step: StepReport | None = None
    restart: str = ""


def plan_stages(plan: TrainingPlan, graph: Graph, *, zero: int | None = None) -> tuple[StageSpec, ...]:
    """The stages of a plan as they run. Along mesh axes that split nothing but examples, ranks have runs of their own;
    those along other axes compute runs together.

    Args:
        graph: that the plan is for.
        zero: the ZeRO stage, whatever the plan says of that; None for the highest that a stage has in the plan.
    """
    loops = {op.name: along for op, along in zip(graph.operators, BatchDims(graph).loops, strict=True)}
    backward = {operator.name for operator in graph.operators if operator.is_backward}
    whole = set(plan.shared_parameters)
    found = []
    for stage in plan.stages:
        shared = shared_axes(stage, loops)
        spec = StageSpec(
            forward=tuple(name for name in stage.operators if name not in backward),
            backward=tuple(name for name in stage.operators if name in backward),
            ranks=tuple(stage.devices),
            micro_batch=plan.micro_batch_of(stage),
            recomputes=stage.recomputes,
            zero=max(stage.zero_stages, default=0) if zero is None else zero,
        )
        found.append(with_sharding(spec, stage, graph, shared, whole) if shared else spec)
    return tuple(found)


def slice_stages(plan: TrainingPlan, graph: Graph, *, zero: int | None = None) -> list[tuple[StageSpec, ...]]:
    """Of each slice of a plan's micro-batches its stages, with their shardings for the slice's tokens; see
    `plan_stages`. None where micro-batches are whole; FailedPreconditionError where the model cannot be sliced."""
    if not plan.slices:
        return []
    tokens = TokenSlices(graph)
    by_length = {length: plan_stages(plan, tokens.at(graph, length, 0), zero=zero) for length in set(plan.slices)}
    return [by_length[length] for length in plan.slices]
