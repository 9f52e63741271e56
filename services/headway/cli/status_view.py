"""Shows the state of a stack."""

from collections.abc import Iterator

from rich.console import Group, JustifyMethod, RenderableType
from rich.text import Text

from headway.cli.rank_text import rank_text
from headway.cli.wide_table import WideTable
from headway.client.status import (
    ClusterStatus,
    ControllerStatus,
    FleetStatus,
    GroupStatus,
    ModelAttainment,
    WorkerStatus,
)
from headway.core.engine_kind import EngineKind
from headway.core.plan.serving import ServingPlan
from headway.core.slo import Slo
from headway.core.units import format_bytes, format_duration

_CONTEXT_TOKENS = 512

_MODEL_COLUMNS: tuple[tuple[str, JustifyMethod], ...] = (
    ("model", "left"),
    ("task", "left"),
    ("replicas", "right"),
    ("layout", "left"),
    ("longest", "right"),
    ("objective", "left"),
    ("attained", "right"),
    ("predicted", "right"),
    ("completed", "right"),
    ("rejected", "right"),
)
_WORKER_COLUMNS: tuple[tuple[str, JustifyMethod], ...] = (
    ("worker", "left"),
    ("model", "left"),
    ("group", "left"),
    ("state", "left"),
    ("running", "right"),
    ("waiting", "right"),
    ("KV in use", "right"),
    ("TPOT (to plan)", "right"),
    ("hardware", "left"),
)
_PROCESS_COLUMNS: tuple[tuple[str, JustifyMethod], ...] = (
    ("process", "left"),
    ("state", "left"),
    ("pid", "right"),
    ("gRPC", "left"),
    ("metrics", "left"),
    ("up for", "right"),
    ("restarts", "right"),
)

_COLOURS = {"ready": "green", "rank": "green", "stopped": "red", "restarting": "red"}


def status_view(status: ClusterStatus, *, now_s: float) -> RenderableType:
    """Shows a headline, models, workers with their load, and processes. `now_s` is in seconds since 1970."""
    return Group(
        _headline(status),
        _models(status.plan, status.fleet),
        _workers(status.controller, status.fleet, status.plan),
        *_backends(status.fleet),
        _processes(status.controller, now_s=now_s),
    )


def _headline(status: ClusterStatus) -> Text:
    controller = status.controller
    if controller.fault is not None:
        return Text(f"faulty: {controller.fault.message} {controller.fault.hint}", style="bold red")
    if not controller.ready:
        return Text(f"starting, {controller.progress:.0%}: waiting for {controller.waiting_for}", style="yellow")
    text = Text("ready", style="bold green")
    load = f", plan {controller.plan_id}, {status.fleet.num_in_flight} in flight, {status.fleet.num_queued} queued"
    if status.plan is not None and status.plan.is_emulated:
        load += f"; {status.plan.emulated_devices} emulated, answers are made up"
    text.append(load, style="default")
    for fault in controller.faults:
        text.append(f"\n{fault}", style="yellow")
    return text


def _models(plan: ServingPlan | None, fleet: FleetStatus) -> WideTable:
    rows: list[tuple[str, ...]] = []
    attainments = {attainment.model: attainment for attainment in fleet.attainments}
    for model in plan.models if plan is not None else ():
        replicas = [a for a in plan.assignments if a.model == model.name] if plan is not None else []
        attainment = attainments.get(model.name, ModelAttainment(model=model.name))
        cells = (
            model.name,
            model.spec.task,
            str(len(replicas)) if plan is None or model.name not in plan.asleep else "asleep",
            ", ".join(dict.fromkeys(str(replica.parallel) for replica in replicas)) or "-",
            str(max((replica.max_model_len for replica in replicas), default="-")),
            _objective(model.slo),
            _share(attainment.attainment),
            _share(attainment.predicted),
            str(attainment.num_completed),
            str(attainment.num_rejected),
        )
        rows.append(cells)
    return WideTable(_MODEL_COLUMNS, rows, 1)


def _workers(controller: ControllerStatus, fleet: FleetStatus, plan: ServingPlan | None) -> WideTable:
    rows: list[tuple[str | Text, ...]] = []
    loads = {(load.worker_id, load.model): load for load in fleet.groups}
    cores = {process.name: process.cores for process in controller.processes}
    for worker in controller.workers:
        hardware = worker.hardware
        described = "-"
        if hardware is not None and hardware.server is not None:
            described = f"{hardware.engine_label} at {hardware.server.url}"
        elif hardware is not None:
            each = "" if hardware.num_devices == 1 else " each"
            threads = "" if hardware.is_emulated else f", {hardware.num_threads} threads{each}"
            bound = f" on {_cores(own)}" if (own := cores.get(worker.worker_id)) else ""
            device = f" (GPU {hardware.device_id})" if hardware.device_id else ""
            engine = "" if hardware.engine is EngineKind.HEADWAY else f", {hardware.engine_label}"
            described = f"{hardware.label}{device}{threads}{bound}{engine}, {format_bytes(hardware.memory_bytes)}{each}"
        for number, model in enumerate(worker.models or (worker.model,)):
            load = loads.get((worker.worker_id, model))
            worker_id, group = (worker.worker_id, _group(worker, plan)) if number == 0 else ("", "")
            state = worker.state if load is None or worker.state == "lost" else load.state
            hardware_text = described if number == 0 else ""
            rows.append((worker_id, model or "-", group, _state(state), *_load(load), _tpot(load, plan), hardware_text))
    return WideTable(_WORKER_COLUMNS, rows, 2)


def _backends(fleet: FleetStatus) -> Iterator[Text]:
    """A line for each replica that was to run on a backend."""
    for load in fleet.groups:
        if load.backend:
            yield Text(f"{load.model} on {load.worker_id} runs on {load.backend}")


def _group(worker: WorkerStatus, plan: ServingPlan | None) -> str:
    """A worker's group, with its role if it has one; in a larger group with its rank and the part that it holds."""
    assignment = None if plan is None else next(iter(plan.assignments_of(worker.worker_id)), None)
    if worker.num_ranks == 1:
        role = f" ({assignment.role})" if assignment is not None and assignment.role else ""
        return f"{worker.group_id or '-'}{role}"
    part = ""
    if assignment is not None and assignment.group_id == worker.group_id and assignment.ranks:
        part = rank_text(assignment, assignment.worker_ids.index(worker.worker_id))
    rank = f"rank {worker.rank} of {worker.num_ranks}"
    return f"{worker.group_id} ({rank}{', ' if part else ''}{part})"


def _cores(cores: tuple[int, ...]) -> str:
    """Writes bound cores as 'core 0', 'cores 0-3' or 'cores 0 2'."""
    first, last = min(cores), max(cores)
    if len(cores) == 1:
        return f"core {first}"
    return f"cores {first}-{last}" if last - first + 1 == len(cores) else f"cores {' '.join(map(str, cores))}"


def _processes(controller: ControllerStatus, *, now_s: float) -> WideTable:
    rows: list[tuple[str | Text, ...]] = []
    for process in controller.processes:
        up_for = format_duration(max(0.0, now_s - process.started_at_s)) if process.started_at_s else "-"
        cells = (
            process.name,
            _state(process.state),
            str(process.pid or "-"),
            process.endpoint or "-",
            process.metrics_endpoint or "-",
            up_for,
            str(process.num_restarts),
        )
        rows.append(cells)
    return WideTable(_PROCESS_COLUMNS, rows, 1)


def _load(load: GroupStatus | None) -> tuple[str, str, str]:
    if load is None or not load.model:
        return "-", "-", "-"
    if not load.num_blocks:
        return str(load.num_running), str(load.num_waiting), "-"
    used = 1 - load.num_free_blocks / load.num_blocks
    return str(load.num_running), str(load.num_waiting), f"{used:.0%} of {load.num_blocks}"


def _tpot(load: GroupStatus | None, plan: ServingPlan | None) -> str:
    """TPOT of one sequence as the router predicts it now, and how far that is above the plan's."""
    planned = None if load is None or plan is None else plan.assignment(load.worker_id, load.model)
    if load is None or load.latency is None or planned is None or planned.num_blocks == 0:
        return "-"
    live_s, planned_s = (
        latency.decode_s(num_decodes=1, context_tokens=_CONTEXT_TOKENS)
        for latency in (load.latency, planned.prediction.latency)
    )
    return f"{format_duration(live_s)} ({live_s / planned_s - 1:+.0%})"


def _objective(slo: Slo) -> str:
    bounds = {"TTFT": slo.ttft_s, "TPOT": slo.tpot_s, "answer": slo.e2e_s}
    return ", ".join(f"{name} {format_duration(s)}" for name, s in bounds.items() if s is not None) or "-"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _state(state: str) -> Text:
    return Text(state, style=_COLOURS.get(state, "yellow"))
