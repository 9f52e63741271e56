"""Which of the wanted models are planned for, where not all can be. What runs is not disturbed by what does not fit,
unless that has a higher priority."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from headway.core.errors import ErrorCode, FailedPreconditionError, HeadwayError
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
    wanted: Sequence[ModelDeployment],
    *,
    current: Mapping[str, ModelDeployment],
    try_plan: TryPlan,
    priorities: Mapping[str, int] | None = None,
) -> Admission:
    """Plans for all of them; where that cannot be, for those that are served now, as they are, and then for each other
    one in turn, where it fits beside what has been taken in by then, or in place of some of that with lower priorities.

    Args:
        wanted: those with the better claim first, so also those with the higher priority.
        current: models that are served now, by name.
        try_plan: makes a plan for models, or raises why there is none.
        priorities: by model, 0 where there is none.

    Raises:
        HeadwayError: of the planner, which may pass by itself; or nothing can be planned for.
    """
    try:
        return Admission(plan=await try_plan(wanted), refused={})
    except HeadwayError as error:
        if error.code in _PASSING or (len(wanted) == 1 and wanted[0].name not in current):
            raise
    priority_of = {model.name: (priorities or {}).get(model.name, 0) for model in wanted}
    taken = {model.name: current[model.name] for model in wanted if model.name in current}
    plan = await try_plan(list(taken.values())) if taken else None
    refused: dict[str, HeadwayError] = {}
    for model in wanted:
        if taken.get(model.name) == model:
            continue
        weaker = [
            name for name in reversed(priority_of) if name in taken and priority_of[name] < priority_of[model.name]
        ]
        try:
            plan, attempt = await _make_room(model, taken, weaker=weaker, try_plan=try_plan)
        except HeadwayError as error:
            if error.code in _PASSING:
                raise
            refused.setdefault(model.name, error)
            continue
        refused |= {name: _displaced(name, model) for name in taken if name not in attempt}
        refused.pop(model.name, None)
        taken = attempt
    if plan is None:
        raise next(iter(refused.values()))
    return Admission(plan=plan, refused=refused)


async def _make_room(
    model: ModelDeployment, taken: Mapping[str, ModelDeployment], *, weaker: Sequence[str], try_plan: TryPlan
) -> tuple[ServingPlan, dict[str, ModelDeployment]]:
    """A plan for one more model and for those of `taken` that can stay: of the weaker ones, of which the last have the
    best claim, as many as still fit.

    HeadwayError, as for all of them together, where it does not fit in place of all the weaker ones either.
    """
    together = {**taken, model.name: model}
    try:
        return await try_plan(list(together.values())), together
    except HeadwayError as error:
        if error.code in _PASSING or not weaker:
            raise
        refusal = error
    stay = {name: each for name, each in together.items() if name not in weaker}
    try:
        plan = await try_plan(list(stay.values()))
    except HeadwayError as error:
        raise (error if error.code in _PASSING else refusal) from None
    for name in reversed(weaker):
        attempt = {other: each for other, each in together.items() if other in stay or other == name}
        try:
            plan, stay = await try_plan(list(attempt.values())), attempt
        except HeadwayError as error:
            if error.code in _PASSING:
                raise
    return plan, stay


def _displaced(name: str, by: ModelDeployment) -> HeadwayError:
    return FailedPreconditionError(
        f"{name} made room for {by.name}, whose priority is higher.",
        hint="Add workers, or raise its priority.",
        field="priority",
    )
