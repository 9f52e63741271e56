"""Which of the wanted models are planned for, where not all can be. What runs is not disturbed by what does not fit."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from headway.core.errors import ErrorCode, HeadwayError
from headway.core.plan.serving import ModelDeployment, ServingPlan

_PASSING = (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED)

TryPlan = Callable[[Sequence[ModelDeployment]], Awaitable[ServingPlan]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A plan for as many of the wanted models as can be planned for together.

    Attributes:
        plan: None where there is none.
        refused: why a model is not in it as it is wanted, by name.
    """

    plan: ServingPlan | None
    refused: Mapping[str, HeadwayError]


async def admit(
    wanted: Sequence[ModelDeployment], *, current: Mapping[str, ModelDeployment], try_plan: TryPlan
) -> Admission:
    """Plans for all of them; where that cannot be, for those that are served now, as they are, and then for each other
    one in turn, where it fits beside what has been taken in by then.

    Args:
        wanted: those with the better claim first.
        current: models that are served now, by name.
        try_plan: makes a plan for models, or raises why there is none.

    Raises:
        HeadwayError: of the planner, which may pass by itself; or nothing can be planned for.
    """
    try:
        return Admission(plan=await try_plan(wanted), refused={})
    except HeadwayError as error:
        if error.code in _PASSING or (len(wanted) == 1 and wanted[0].name not in current):
            raise
    taken = {model.name: current[model.name] for model in wanted if model.name in current}
    plan = await try_plan(list(taken.values())) if taken else None
    refused: dict[str, HeadwayError] = {}
    for model in wanted:
        if taken.get(model.name) == model:
            continue
        attempt = taken | {model.name: model}
        try:
            plan, taken = await try_plan(list(attempt.values())), attempt
        except HeadwayError as error:
            if error.code in _PASSING:
                raise
            refused[model.name] = error
    if plan is None:
        raise next(iter(refused.values()))
    return Admission(plan=plan, refused=refused)
