"""The devices to place models on: those of a file, or of a running stack."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headway.cli.placement.files import read_clusters
from headway.cli.running import cluster_status
from headway.client.status import ControllerStatus
from headway.core.catalogue import Catalogue, read_catalogue
from headway.core.cluster import PlanWorker
from headway.core.device_name import device_name
from headway.core.engine_kind import EngineKind
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.line import QueuePolicy
from headway.core.live_placement import live_clusters
from headway.core.placement_problem import PlacementProblem, ServingCluster, planned_policy
from headway.core.units import format_duration

LIVE = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """Settings of a stack that matter to a plan; see `PlacementProblem`."""

    answer_overhead_s: float = 0.0
    queue_policy: QueuePolicy = QueuePolicy.LEAST_SLACK


def stack_settings(text: str, state_dir: Path | None) -> StackSettings:
    """Settings of the running stack whose workers are the cluster; the defaults for another cluster."""
    if text != LIVE:
        return StackSettings()
    return _settings_of(cluster_status(None, api_key=None, state_dir=state_dir).controller)


def setting_differences(problem: PlacementProblem, status: ControllerStatus) -> list[str]:
    """Says how a stack's settings differ from those that a plan was predicted with, and what to do."""
    stack, remedy, found = _settings_of(status), "start it with the plan's, or plan again", []
    generates = any(model.generates for model in problem.models)
    if planned_policy(stack.queue_policy, generates=generates) is not problem.queue_policy:
        found.append(
            f"planned with --queue-policy {problem.queue_policy}, the stack has {stack.queue_policy}: {remedy}"
        )
    if stack.answer_overhead_s != problem.answer_overhead_s:
        planned, live = (format_duration(seconds) for seconds in (problem.answer_overhead_s, stack.answer_overhead_s))
        found.append(f"planned with --answer-overhead {planned}, the stack counts {live}: {remedy}")
    return found


def _settings_of(status: ControllerStatus) -> StackSettings:
    return StackSettings(answer_overhead_s=status.answer_overhead_s, queue_policy=QueuePolicy(status.queue_policy))


def find_clusters(
    text: str, engines: Collection[EngineKind], *, catalogue: Path | None, state_dir: Path | None
) -> tuple[ServingCluster, ...]:
    """Finds one cluster for each kind of device and engine.

    Args:
        engines: that are to compute models; workers with others do not count.

    Raises:
        FailedPreconditionError: live workers are not known yet, or none has one of the engines.
        InvalidArgumentError: nobody says which devices of a file have which of several engines.
    """
    if text != LIVE:
        return _of_file(Path(text), engines, catalogue=catalogue)
    plan = cluster_status(None, api_key=None, state_dir=state_dir).plan
    if plan is None or not plan.workers:
        raise FailedPreconditionError("No workers are live yet.", hint="`headway status` says what is waited for.")
    return clusters_with(engines, plan.workers, catalogue=read_catalogue(catalogue))


def clusters_with(
    engines: Collection[EngineKind], workers: Sequence[PlanWorker], *, catalogue: Catalogue
) -> tuple[ServingCluster, ...]:
    """The workers that have one of the engines, as clusters. FailedPreconditionError where an engine has none."""
    of_engines = [worker for worker in workers if worker.hardware.engine in engines]
    if missing := sorted(set(engines) - {worker.hardware.engine for worker in of_engines}):
        raise FailedPreconditionError(
            f"A model is to run on {missing[0]}, and no live worker has that engine.",
            hint="Start the stack with workers for it: headway up --engine.",
            field="engine",
        )
    return live_clusters(of_engines, catalogue=catalogue)


def _of_file(path: Path, engines: Collection[EngineKind], *, catalogue: Path | None) -> tuple[ServingCluster, ...]:
    if len(engines) > 1:
        raise InvalidArgumentError(
            f"The models are to run on {' and '.join(sorted(engines))}, and {path} does not say which devices have "
            "which.",
            hint="Place them on the workers of a running stack, --cluster live, or each engine's on devices of its "
            "own.",
            field="--cluster",
        )
    (engine,) = engines
    found = read_clusters(path, catalogue=catalogue)
    return tuple(replace(each, device=device_name(each.device, engine)) for each in found)
