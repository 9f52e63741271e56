"""Gives groups their roles: some compute prompts (prefill), others go on with the sequences (decode). Pure."""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.errors import FailedPreconditionError
from headway.core.plan.serving import Assignment, EngineLimits, Role
from headway.core.roles import num_role_workers


def with_roles(assignments: Sequence[Assignment], limits: EngineLimits) -> tuple[Assignment, ...]:
    """Makes the first assignments prefill and the others decode, as many as the limits say; changes nothing where they
    say none.

    Raises:
        FailedPreconditionError: there are fewer or more.
    """
    if not limits.is_disaggregated:
        return tuple(assignments)
    if len(assignments) != num_role_workers(limits):
        raise FailedPreconditionError(
            f"{limits.prefill_workers} prefill and {limits.decode_workers} decode workers are wanted, and the model "
            f"fits {len(assignments)} workers.",
            hint=f"Start {num_role_workers(limits)} workers (--workers {num_role_workers(limits)}) of enough memory.",
            field="workers",
        )
    num_prefill = limits.prefill_workers or 0
    return tuple(
        replace(assignment, role=Role.PREFILL if number < num_prefill else Role.DECODE)
        for number, assignment in enumerate(assignments)
    )
