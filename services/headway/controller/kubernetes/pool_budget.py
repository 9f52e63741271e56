"""Whose cells a node that is drained may take: of each pool one at a time."""

from typing import Any

from headway.controller.kubernetes.api import ResourceKind
from headway.controller.kubernetes.pool_resource import POOL_LABEL, PoolResource

DISRUPTION_BUDGET = ResourceKind(
    kind="PodDisruptionBudget", plural="poddisruptionbudgets", group="policy", version="v1"
)


def budget_name(pool: PoolResource) -> str:
    """Pools of the chart's values have theirs under the names of pools."""
    return f"{pool.name}-cells"


def pool_budget(pool: PoolResource, *, num_cells: int) -> dict[str, Any]:
    """It says how many cells stay: how many may go Kubernetes takes from `spec.replicas` alone, which a pool that
    scales does not have.

    Args:
        num_cells: that there are to be, or are, whichever is more.
    """
    return {
        "metadata": {"labels": {POOL_LABEL: pool.name}, "ownerReferences": [pool.owner_reference]},
        "spec": {"minAvailable": max(0, num_cells - 1), "selector": {"matchLabels": {POOL_LABEL: pool.name}}},
    }
