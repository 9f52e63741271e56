"""The status of a WorkerPool: how many cells there are, and why not as many as wanted. Pure."""

from collections.abc import Sequence
from typing import Any

from headway.controller.kubernetes.cells import Cell
from headway.controller.kubernetes.condition import Condition, conditions_of
from headway.controller.kubernetes.pool_resource import PoolResource
from headway.core.errors import ErrorCode, HeadwayError


def pool_status_of(
    pool: PoolResource,
    cells: Sequence[Cell],
    *,
    num_wanted: int,
    fault: HeadwayError | None,
    blocked: HeadwayError | None,
    now: str,
) -> dict[str, Any]:
    """What the status should say.

    Args:
        fault: why the pool is left as it is.
        blocked: why it does not shrink to what is wanted.
        now: in UTC, as text.
    """
    live = [cell for cell in cells if cell.is_live]
    conditions = (
        _ready(live, num_wanted),
        _scaling(live, num_wanted, blocked),
        _degraded(cells, fault),
    )
    return {
        "observedGeneration": pool.generation,
        "replicas": len(live),
        "readyReplicas": sum(cell.is_ready for cell in live),
        "updatedReplicas": sum(not cell.is_outdated for cell in live),
        "wantedReplicas": num_wanted,
        "selector": pool.selector,
        "conditions": conditions_of(conditions, generation=pool.generation, previous=pool.status, now=now),
    }


def _ready(live: Sequence[Cell], num_wanted: int) -> Condition:
    num_ready = sum(cell.is_ready for cell in live)
    is_ready = num_ready >= num_wanted
    return Condition(
        type="Ready",
        is_so=is_ready,
        reason="CellsReady" if is_ready else "CellsNotReady",
        message=f"{num_ready} of {num_wanted} cells are ready",
    )


def _scaling(live: Sequence[Cell], num_wanted: int, blocked: HeadwayError | None) -> Condition:
    if blocked is not None:
        told = f"The models need more than {num_wanted} cells. {blocked}"
        return Condition(type="Scaling", is_so=False, reason="NeededForModels", message=told)
    if len(live) == num_wanted:
        return Condition(type="Scaling", is_so=False, reason="AsWanted")
    reason = "Growing" if len(live) < num_wanted else "Draining"
    return Condition(type="Scaling", is_so=True, reason=reason, message=f"from {len(live)} to {num_wanted} cells")


def _degraded(cells: Sequence[Cell], fault: HeadwayError | None) -> Condition:
    if fault is not None:
        reason = "Invalid" if fault.code is ErrorCode.INVALID_ARGUMENT else "PodsRefused"
        return Condition(type="Degraded", is_so=True, reason=reason, message=str(fault))
    troubles = [f"{cell.name}: {cell.trouble}" for cell in cells if cell.trouble]
    if not troubles:
        return Condition(type="Degraded", is_so=False, reason="CellsRun")
    return Condition(type="Degraded", is_so=True, reason="CellsDoNotRun", message="; ".join(troubles))
