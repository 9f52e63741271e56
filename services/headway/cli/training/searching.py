"""Searches a training plan: captures the model, reads the cluster, then runs a search job."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from headway.cli.placement.files import read_text
from headway.cli.search.follow import SearchOrder, run_search, start_search
from headway.cli.search.interrupt import interruptible
from headway.cli.search.planner_link import planner_link, require_stack, stack_planner
from headway.cli.search.progress import showing
from headway.cli.training.captures import capture_training_step
from headway.core.catalogue import Catalogue, read_catalogue
from headway.core.catalogue.device import Device
from headway.core.codec import to_document
from headway.core.errors import InvalidArgumentError
from headway.core.hardware.profile import HardwareProfile
from headway.core.operator_seconds import OperatorSeconds
from headway.core.plan.document import plan_from_document
from headway.core.plan.training import TrainingPlan
from headway.core.precision import Precision
from headway.core.search_job import SearchJob
from headway.core.training_cluster import TrainingCluster
from headway.core.training_cluster_file import parse_training_cluster, read_training_cluster
from headway.core.training_layout import TrainingLayout
from headway.core.training_layout_file import read_training_layout
from headway.core.training_search import GRAPH, SCHEDULES, SOLVERS, TrainingSearch

_PRECISIONS = (Precision.BFLOAT16, Precision.FLOAT16, Precision.FLOAT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """What a user asks `headway plan train` for; see its options."""

    model: str
    cluster: str
    batch: int
    seq: int | None
    precision: Precision | None
    micro_batches: tuple[int, ...]
    num_layers: int | None
    method: str
    explains: bool
    fixed: Path | None
    hardware: HardwareProfile | None
    time_limit_s: float | None
    anew: bool
    detach: bool
    deadline_s: float
    catalogue: Path | None
    state_dir: Path | None
    schedule: str = SCHEDULES[0]
    solver: str = SOLVERS[0]
    processes: int | None = None
    ray: str = ""
    measured: OperatorSeconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTraining:
    """A plan, and the captured graph that it is for."""

    plan: TrainingPlan
    graph: bytes


async def search_training_plan(options: TrainOptions, *, graph: bytes | None = None) -> PlannedTraining | SearchJob:
    """Searches and returns the plan; of a detached search the job.

    Args:
        graph: of the model, where it was captured before.

    Raises:
        HeadwayError: of the capture, the cluster or the search.
    """
    if options.detach:
        require_stack(options.state_dir, ray=options.ray)
    catalogue = read_catalogue(options.catalogue)
    cluster = _cluster(options.cluster, catalogue)
    devices = tuple(catalogue.devices[group.device] for group in cluster.groups)
    precision = _precision(options.precision, devices)
    _check_micro_batches(options)
    layout = _layout(options.fixed)
    console = Console(stderr=True)
    with showing(console) as show:
        if graph is None:
            graph = await capture_training_step(
                options.model, seq=options.seq, state_dir=options.state_dir, deadline_s=options.deadline_s, show=show
            )
        search = TrainingSearch(
            model=options.model,
            batch=options.batch,
            cluster=cluster,
            devices=devices,
            precision=precision.value,
            num_layers=options.num_layers,
            micro_batches=options.micro_batches,
            method=options.method,
            schedule=options.schedule,
            explains=options.explains,
            hardware=options.hardware,
            measured=options.measured,
            layout=layout,
            solver=options.solver,
            processes=options.processes,
        )
        order = SearchOrder(
            kind="training",
            request=to_document(search),
            files={GRAPH: graph},
            title=search.title,
            time_limit_s=options.time_limit_s,
            anew=options.anew,
        )
        if options.detach:
            return await start_search(stack_planner(options.state_dir), order)
        with interruptible(console) as stop:
            async with planner_link(
                options.state_dir, catalogue=options.catalogue, ray=options.ray, processes=options.processes
            ) as planner:
                found = await run_search(planner, order, stop=stop, show=show)
    return PlannedTraining(plan=plan_from_document(TrainingPlan, found), graph=graph)


def _layout(path: Path | None) -> TrainingLayout | None:
    return None if path is None else read_training_layout(read_text(path), file=str(path))


def _cluster(text: str, catalogue: Catalogue) -> TrainingCluster:
    path = Path(text)
    if path.is_file():
        return read_training_cluster(read_text(path), file=text, catalogue=catalogue)
    if path.suffix in (".yaml", ".yml"):
        raise InvalidArgumentError(f"There is no file {text}.", hint="Or write 8x8xV100.", field="cluster")
    return parse_training_cluster(text, catalogue)


def _precision(wanted: Precision | None, devices: tuple[Device, ...]) -> Precision:
    """The wanted one, or the first that all devices compute in."""
    for precision in (wanted,) if wanted else _PRECISIONS:
        if all(precision.value in device.peak for device in devices):
            return precision
    lacking = next(device for device in devices if wanted is None or wanted.value not in device.peak)
    raise InvalidArgumentError(
        f"{lacking.name} does not compute in {wanted}.",
        hint="It has " + ", ".join(f"--precision {each}" for each in _PRECISIONS if each in lacking.peak) + ".",
        field="precision",
    )


def _check_micro_batches(options: TrainOptions) -> None:
    for number in options.micro_batches:
        if options.batch % number:
            below = max(d for d in range(1, number) if options.batch % d == 0)
            raise InvalidArgumentError(
                f"A batch of {options.batch} does not divide into {number} micro-batches.",
                hint=f"{below} would.",
                field="micro_batches",
            )
