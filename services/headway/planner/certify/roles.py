"""Checks the roles of a plan's groups in disaggregated serving."""

from collections.abc import Iterator

from headway.core.plan.serving import Assignment, ModelDeployment, Role, ServingPlan


def role_violations(plan: ServingPlan) -> Iterator[str]:
    """Checks that prefill groups have decode groups and the other way round, and that blocks can get from one to the
    other."""
    for model in plan.models:
        groups = [assignment for assignment in plan.assignments if assignment.model == model.name]
        roles = {assignment.role for assignment in groups}
        if roles <= {Role.BOTH}:
            continue
        for role, other in ((Role.PREFILL, Role.DECODE), (Role.DECODE, Role.PREFILL)):
            if role in roles and other not in roles:
                yield f"Model '{model.name}' has groups for {role} and none for {other}."
        if Role.BOTH in roles:
            yield f"Of the groups of model '{model.name}' some have a role and some have none."
        if len(sizes := {assignment.block_size for assignment in groups}) > 1:
            yield f"Model '{model.name}' has blocks of {', '.join(map(str, sorted(sizes)))} tokens, which cannot move."
        yield from _group_violations(model, groups)


def _group_violations(model: ModelDeployment, groups: list[Assignment]) -> Iterator[str]:
    for assignment in groups:
        if assignment.role is Role.BOTH:
            continue
        if model.spec.encoder is not None:
            yield f"{assignment.group_id}: its role is {assignment.role}, and '{model.name}' does not generate."
        if assignment.ranks:
            yield f"{assignment.group_id}: its role is {assignment.role}, and its blocks lie on several workers."
        if not assignment.enable_prefix_cache and model.spec.encoder is None:
            yield f"{assignment.group_id}: its role is {assignment.role}, and it has no prefix cache."
