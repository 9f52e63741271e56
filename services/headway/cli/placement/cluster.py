"""The devices to place models on: those of a file, or of a running stack."""

from dataclasses import dataclass
from pathlib import Path

from headway.cli.placement.files import read_clusters
from headway.cli.running import cluster_status
from headway.client.status import ControllerStatus
from headway.core.catalogue import read_catalogue
from headway.core.errors import FailedPreconditionError
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


def find_clusters(text: str, *, catalogue: Path | None, state_dir: Path | None) -> tuple[ServingCluster, ...]:
    """Finds one cluster for each kind of device. FailedPreconditionError where live workers are not known yet."""
    if text != LIVE:
        return read_clusters(Path(text), catalogue=catalogue)
    plan = cluster_status(None, api_key=None, state_dir=state_dir).plan
    if plan is None or not plan.workers:
        raise FailedPreconditionError("No workers are live yet.", hint="`headway status` says what is waited for.")
    return live_clusters(plan.workers, catalogue=read_catalogue(catalogue))
