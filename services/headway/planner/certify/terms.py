"""Checks that models are served on the terms that they were declared with: in their layout, by their roles, on their
pools."""

from collections import Counter
from collections.abc import Iterator, Mapping

from headway.core.plan.serving import Assignment, ModelDeployment, Role, ServingPlan


def terms_violations(assignment: Assignment, model: ModelDeployment, pools: Mapping[str, str]) -> Iterator[str]:
    """Checks a group of a model.

    Args:
        pools: of each worker.
    """
    if model.parallel is not None and assignment.parallel != model.parallel:
        yield f"{assignment.group_id}: it has {assignment.parallel}, and '{model.name}' is to have {model.parallel}."
    for worker_id in assignment.worker_ids:
        if model.pools and pools.get(worker_id, "") not in model.pools:
            pool = pools.get(worker_id, "") or "no pool"
            yield f"{worker_id} is of {pool}, and '{model.name}' is for {' and '.join(model.pools)}."


def role_count_violations(plan: ServingPlan, model: ModelDeployment) -> Iterator[str]:
    """Checks that a model has as many groups of each role as it is to have."""
    if not model.has_roles:
        return
    counts = Counter(each.role for each in plan.assignments if each.model == model.name)
    for role, wanted in ((Role.PREFILL, model.prefill_workers), (Role.DECODE, model.decode_workers)):
        if counts[role] != wanted:
            yield f"Model '{model.name}' has {counts[role]} groups for {role}, and is to have {wanted or 0}."
