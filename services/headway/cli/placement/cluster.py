"""The devices to place models on: those of a file, or of a running stack."""

from pathlib import Path

from headway.cli.placement.files import read_clusters
from headway.cli.running import cluster_status
from headway.core.catalogue import read_catalogue
from headway.core.errors import FailedPreconditionError
from headway.core.live_placement import live_clusters
from headway.core.placement_problem import ServingCluster

LIVE = "live"


def live_overhead_s(text: str, state_dir: Path | None) -> float:
    """What a stack whose workers are the cluster counts for an answer; 0 where it is another."""
    if text != LIVE:
        return 0.0
    return cluster_status(None, api_key=None, state_dir=state_dir).controller.answer_overhead_s


def find_clusters(text: str, *, catalogue: Path | None, state_dir: Path | None) -> tuple[ServingCluster, ...]:
    """One for each kind of device. FailedPreconditionError where live workers are not known yet."""
    if text != LIVE:
        return read_clusters(Path(text), catalogue=catalogue)
    plan = cluster_status(None, api_key=None, state_dir=state_dir).plan
    if plan is None or not plan.workers:
        raise FailedPreconditionError("No workers are live yet.", hint="`headway status` says what is waited for.")
    return live_clusters(plan.workers, catalogue=read_catalogue(catalogue))
