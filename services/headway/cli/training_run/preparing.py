"""Makes a run of a job: plans, captures the step as it will run, compiles and certifies the lists of all ranks."""

import os
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from rich.console import Console

from headway.cli.plan_file import read_plan
from headway.cli.search.progress import Show, showing
from headway.cli.training.searching import PlannedTraining, TrainOptions, search_training_plan
from headway.cli.training_run.gpu import gpu_of_rank
from headway.cli.training_run.profiling import ProfilingOptions, figures_of
from headway.core.capture import CaptureProgress, CaptureRequest
from headway.core.catalogue import read_catalogue
from headway.core.codec import from_document, to_document
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.execution.certifier import Certificate, certify
from headway.core.execution.compiler import compile_execution
from headway.core.execution.execution import Execution, StageSpec
from headway.core.execution.mixed import in_bfloat16, with_casts
from headway.core.execution.orders import stage_orders
from headway.core.execution.slices import slice_step
from headway.core.graph import Graph
from headway.core.graph_file import graph_bytes
from headway.core.initial_weights import WeightsRequest
from headway.core.operator_seconds import OperatorSeconds
from headway.core.plan.training import TrainingPlan
from headway.core.precision import Precision
from headway.core.program import Program
from headway.core.search_progress import SearchProgress
from headway.core.training_job import AUTO, CUDA, TrainingJob
from headway.core.training_run import TrainingRun, plan_stages, slice_stages
from headway.rpc.child import call_child

_CAPTURE_BATCH = 2
_DEVICE = "CPU"
_CLUSTER = """\
device: {device}
num_nodes: {nodes}
devices_per_node: {per_node}
memory_per_device: {memory} MiB
network: Ethernet 10
"""
_CPU_LINK = "link: loopback\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A run that could start, and what is known of it.

    Attributes:
        priced_by: by whose figures the plan was searched, in words; empty for one that was given.
    """

    run: TrainingRun
    plan: TrainingPlan
    certificate: Certificate
    priced_by: str = ""


async def prepare_run(job: TrainingJob, *, deadline_s: float, state_dir: Path | None) -> PreparedRun:
    """Makes everything but the weights.

    Raises:
        HeadwayError: of the capture or the search.
        InvalidArgumentError: the plan is for another model, batch or number of workers.
        FailedPreconditionError: the plan has what workers cannot run, or its lists are not right.
    """
    plan, priced_by = _given(job), ""
    console = Console(stderr=True)
    with showing(console) as show:
        step = await _capture(job, _CAPTURE_BATCH, deadline_s=deadline_s, show=show)
    graph, program = step.whole
    if plan is None:
        plan, priced_by = await _planned(job, graph, program, deadline_s=deadline_s, state_dir=state_dir)
    lengths = tuple(sorted(set(plan.slices)))
    captured = {} if lengths else {_CAPTURE_BATCH: step}
    with showing(console) as show:
        stages = plan_stages(plan, graph, zero=job.zero)
        counts = sorted({stage.examples for stage in stages})
        for count in counts:
            if count not in captured:
                captured[count] = await _capture(job, count, deadline_s=deadline_s, show=show, lengths=lengths)
    by_slice = slice_stages(plan, graph, zero=job.zero)
    used, execution = _compiled(job, plan, stages, by_slice, {count: captured[count] for count in counts})
    certificate = certify(execution)
    if certificate.faults:
        raise FailedPreconditionError(
            f"The lists of actions are not right: {certificate.faults[0]}", hint="This is a fault of Headway."
        )
    run = TrainingRun(
        job=job,
        execution=execution,
        programs={str(count): each for count, each in used.items()},
        planned_s=plan.iteration_s,
        num_tokens=_num_tokens(program),
        flops=graph.flops / _CAPTURE_BATCH * job.batch,
        thread_flops=read_catalogue(None).devices[_DEVICE].flops(job.precision),
        gpu_flops=_gpu_flops(plan, job),
    )
    return PreparedRun(run=run, plan=plan, certificate=certificate, priced_by=priced_by)


def _gpu_flops(plan: TrainingPlan, job: TrainingJob) -> float:
    """FLOP/s of a GPU of the plan's, by the catalogue; 0 where it has none that computes so."""
    device = read_catalogue(None).devices.get(plan.cluster.groups[0].device)
    is_known = job.device == CUDA and device is not None and device.kind == "gpu" and job.precision in device.peak
    return device.flops(job.precision) if is_known and device is not None else 0.0


def _compiled(
    job: TrainingJob,
    plan: TrainingPlan,
    stages: tuple[StageSpec, ...],
    by_slice: list[tuple[StageSpec, ...]],
    captured: dict[int, "_Captured"],
) -> tuple[dict[int, Program], Execution]:
    """The programs that ranks run, by number of examples, and their lists.

    Args:
        by_slice: of each slice the plan's stages.
    """
    used = {count: each.whole[1] for count, each in captured.items()}
    shorter = {count: each.by_length for count, each in captured.items()}
    if job.precision == Precision.BFLOAT16:
        used = {count: in_bfloat16(each) for count, each in used.items()}
        shorter = {count: {n: in_bfloat16(each) for n, each in parts.items()} for count, parts in shorter.items()}
        one = next(iter(used.values()))
        stages, by_slice = with_casts(stages, one), [with_casts(each, one) for each in by_slice]
    num_slices, sums_losses = len(plan.slices) or 1, False
    orders = stage_orders(job.schedule, stages, plan.successors, batch=job.batch, num_slices=num_slices)
    if plan.slices:
        sliced = {count: slice_step(each, shorter[count], plan.slices) for count, each in used.items()}
        used = {count: each.program for count, each in sliced.items()}
        unrolled = next(iter(sliced.values()))
        stages, sums_losses = unrolled.stages(by_slice), unrolled.sums_losses
    return used, compile_execution(
        used,
        stages,
        orders,
        batch=job.batch,
        splits=False,
        optimizer=job.optimizer.name,
        slices=plan.slices,
        sums_losses=sums_losses,
    )


def _num_tokens(program: Program) -> int:
    """Of an example: what its targets are, where these are as many; 0 where examples are no text."""
    inputs = dict(zip(program.names, program.inputs, strict=True))
    targets = inputs.get("targets")
    return targets.shape[1] if targets is not None and targets.bound and len(targets.shape) == 2 else 0


def _given(job: TrainingJob) -> TrainingPlan | None:
    """The plan of the job's file; None where it is to be searched."""
    if job.plan == AUTO:
        return None
    plan = read_plan(Path(job.plan))
    if not isinstance(plan, TrainingPlan):
        raise InvalidArgumentError(f"{job.plan} is no training plan.", hint="Name one.", field="plan")
    has = (plan.batch, plan.cluster.num_devices, plan.precision)
    if has != (job.batch, job.workers, job.precision):
        raise InvalidArgumentError(
            f"The plan is for a batch of {has[0]} on {has[1]} devices in {has[2]}, and the job has a batch of "
            f"{job.batch} on {job.workers} workers in {job.precision}.",
            hint="Give both the same, or let the job say plan: auto.",
            field="plan",
        )
    return plan


async def _planned(
    job: TrainingJob, graph: Graph, program: Program, *, deadline_s: float, state_dir: Path | None
) -> tuple[TrainingPlan, str]:
    """A plan that is searched, and by whose figures."""
    if not graph.gradients:
        raise InvalidArgumentError(
            f"{job.model} has nothing to train.", hint="No parameter gets a gradient.", field="model"
        )
    _, per_node = _nodes(job)
    options = ProfilingOptions(
        precision=Precision(job.precision),
        device=job.device,
        num_threads=max(1, len(os.sched_getaffinity(0)) // per_node),
        deadline_s=deadline_s,
        state_dir=state_dir,
    )
    measured, priced_by = await figures_of(job, graph, program, options)
    return await _search(job, graph, measured, deadline_s=deadline_s, state_dir=state_dir), priced_by


def _nodes(job: TrainingJob) -> tuple[int, int]:
    """Machines, and workers on each."""
    return (job.workers, 1) if job.ray else (1, job.workers)


async def _search(
    job: TrainingJob, graph: Graph, measured: OperatorSeconds | None, *, deadline_s: float, state_dir: Path | None
) -> TrainingPlan:
    """A plan for processes of this machine, which share its memory or its GPUs, or for machines like it that have one
    each."""
    nodes, per_node = _nodes(job)
    if job.device == CUDA:
        device, memory_bytes = await gpu_of_rank(per_node, deadline_s=deadline_s)
        link = ""
    else:
        device, memory_bytes, link = _DEVICE, psutil.virtual_memory().total // per_node, _CPU_LINK
    with TemporaryDirectory() as directory:
        cluster = Path(directory) / "cluster.yaml"
        text = _CLUSTER.format(device=device, nodes=nodes, per_node=per_node, memory=memory_bytes >> 20)
        cluster.write_text(text + link)
        options = TrainOptions(
            model=job.model,
            cluster=str(cluster),
            batch=job.batch,
            seq=job.seq,
            precision=Precision(job.precision),
            micro_batches=() if job.micro_batches is None else (job.micro_batches,),
            num_layers=None,
            method=job.method,
            explains=False,
            fixed=None,
            hardware=None,
            time_limit_s=None,
            anew=False,
            detach=False,
            deadline_s=deadline_s,
            catalogue=None,
            state_dir=state_dir,
            measured=measured,
        )
        planned = await search_training_plan(options, graph=graph_bytes(graph))
    assert isinstance(planned, PlannedTraining), "a search that is waited for gives a plan"
    return planned.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Captured:
    """A step whole, and with fewer tokens by their number."""

    whole: tuple[Graph, Program]
    by_length: dict[int, Program]


async def _capture(
    job: TrainingJob, count: int, *, deadline_s: float, show: Show, lengths: tuple[int, ...] = ()
) -> _Captured:
    request = replace(_request(job, count), lengths=lengths)
    found: CaptureProgress | None = None
    async with aclosing(call_child("headway.profiler.capture", to_document(request), deadline_s=deadline_s)) as answers:
        async for answer in answers:
            found = from_document(CaptureProgress, answer)
            show(SearchProgress(phase=f"capturing {job.model} with {count} examples: {found.phase}"))
    assert found is not None
    assert found.graph is not None, "a capture that ends well has a graph"
    assert found.program is not None, "it was asked for"
    _check_examples(job, found.program, count)
    shorter = {int(length): program for length, program in (found.shorter or {}).items()}
    return _Captured(whole=(found.graph, found.program), by_length=shorter)


def _check_examples(job: TrainingJob, program: Program, count: int) -> None:
    """Whether inputs have as many examples as were asked for, along dim 0."""
    fed = [value.shape for value in program.inputs if not value.is_weight]
    if not any(shape[:1] == (count,) for shape in fed):
        raise InvalidArgumentError(
            f"{job.model} was asked for {count} examples and gives inputs of {', '.join(map(str, map(list, fed)))}.",
            hint="Let its factory take an argument `batch`, and give inputs of so many examples along dim 0.",
            field="model",
        )


async def write_weights(run: TrainingRun, path: Path, *, deadline_s: float) -> None:
    """Writes the weights that training begins with; HeadwayError where the model's code fails."""
    program = next(iter(run.programs.values()))
    request = WeightsRequest(
        capture=_request(run.job, _CAPTURE_BATCH), names=program.names, seed=run.job.seed, path=str(path)
    )
    child = call_child("headway.profiler.capture.weights", to_document(request), deadline_s=deadline_s)
    async with aclosing(child) as answers:
        async for _ in answers:
            pass


def _request(job: TrainingJob, count: int) -> CaptureRequest:
    return CaptureRequest(
        source=job.model, batch=count, seq=job.seq, train=True, with_program=True, without_constants=True
    )
